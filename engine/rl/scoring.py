"""log π of rollouts under a model: what the loss and its reference are made of.

Shapes: B rollouts, T predicted positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.models.logprobs import log_softmax
from engine.rollout import Rollout


@dataclass(frozen=True)
class Batch:
    """Rollouts side by side, right-padded. Causal attention never looks right: no mask needed.

    The filler of `ids` is 0 and means nothing; `mask_BT` comes from lengths alone, so a
    completion's EOS is trained like any token, also where pad = EOS or where id 0 is a word.
    """

    ids: Tensor
    """(B, longest) token ids."""
    start: int
    """Position T = 0 reads the token `ids[:, start]` and predicts the one behind it."""
    mask_BT: Tensor  # noqa: N815 - shape suffix
    """1.0 where a completion token is predicted."""

    @classmethod
    def of(cls, rollouts: Sequence[Rollout], device: torch.device) -> Batch:
        """Prompt and completion of each rollout in one row."""
        spans = [(len(r.prompt_ids), len(r.prompt_ids) + len(r.completion_ids)) for r in rollouts]
        longest = max(end for _, end in spans)
        start = min(prompt for prompt, _ in spans) - 1
        ids = torch.zeros(len(rollouts), longest, dtype=torch.long)
        mask_BT = torch.zeros(len(rollouts), longest - 1 - start)
        for row, (rollout, (prompt, end)) in enumerate(zip(rollouts, spans, strict=True)):
            ids[row, :end] = torch.tensor(rollout.prompt_ids + rollout.completion_ids)
            mask_BT[row, prompt - 1 - start : end - 1 - start] = 1.0
        return cls(ids.to(device), start, mask_BT.to(device))


@dataclass(frozen=True)
class TokenScores:
    """Values outside the batch's mask have no meaning."""

    logprobs_BT: Tensor  # noqa: N815 - shape suffix
    entropy_BT: Tensor  # noqa: N815 - shape suffix
    """Of the whole next-token distribution; without gradient."""


def score(model: torch.nn.Module, batch: Batch, temp: float) -> TokenScores:
    """One forward pass over a batch, logits only from the first completion token on."""
    positions = torch.arange(batch.start, batch.ids.shape[1] - 1, device=batch.ids.device)
    logits_BTV = model(input_ids=batch.ids, use_cache=False, logits_to_keep=positions).logits
    log_p_BTV = log_softmax(logits_BTV, temp)
    targets_BT = batch.ids[:, batch.start + 1 :]
    logprobs_BT = log_p_BTV.gather(-1, targets_BT[:, :, None]).squeeze(-1)
    with torch.no_grad():
        entropy_BT = -(log_p_BTV.exp() * log_p_BTV).sum(-1)
    return TokenScores(logprobs_BT, entropy_BT)
