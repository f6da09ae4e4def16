"""log π of rollouts under a model: what the loss and its reference are made of.

A batch is laid out padded (one rollout a row) or packed (all behind one another in one row); what
comes out has the same shape either way. Shapes: B rollouts, T predicted positions, R rows,
L columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from engine.models.forward import forward, takes
from engine.models.logprobs import (
    CHUNK_BYTES,
    BackboneAndHead,
    TokenLogprobs,
    full_logprobs,
    rows_of,
    token_logprobs,
)
from engine.sampling.base import Rollout


@dataclass(frozen=True)
class Batch:
    """Rollouts as model input. The filler of `ids` is 0 and means nothing.

    `mask_BT` comes from lengths alone, so a completion's EOS is trained like any token, also where
    pad = EOS or where id 0 is a word.
    """

    ids: Tensor
    """(R, L) token ids."""
    start: int
    """First column whose prediction is read; the last one never is."""
    targets_BT: Tensor  # noqa: N815 - shape suffix
    """The completion token each position predicts."""
    mask_BT: Tensor  # noqa: N815 - shape suffix
    """1.0 where a completion token is predicted."""
    positions: Tensor | None = None
    """(R, L) position ids that start anew with each rollout; None where a row is one rollout."""
    read_N: Tensor | None = None  # noqa: N815 - shape suffix
    """Which of the columns from `start` on the marked places of `mask_BT` are read from, in their
    order; None where rows and columns are those of `mask_BT`."""

    @classmethod
    def of(cls, rollouts: Sequence[Rollout], device: torch.device) -> Batch:
        """Padded: prompt and completion of each rollout in one row, filled up on the right.

        Causal attention never looks right, so no attention mask is needed.
        """
        spans = [(len(r.prompt_ids), len(r.prompt_ids) + len(r.completion_ids)) for r in rollouts]
        longest = max(end for _, end in spans)
        start = min(prompt for prompt, _ in spans) - 1
        ids = torch.zeros(len(rollouts), longest, dtype=torch.long)
        mask_BT = torch.zeros(len(rollouts), longest - 1 - start)
        for row, (rollout, (prompt, end)) in enumerate(zip(rollouts, spans, strict=True)):
            ids[row, :end] = torch.tensor(rollout.prompt_ids + rollout.completion_ids)
            mask_BT[row, prompt - 1 - start : end - 1 - start] = 1.0
        ids = ids.to(device)
        return cls(ids, start, ids[:, start + 1 :], mask_BT.to(device))

    @classmethod
    def packed(cls, rollouts: Sequence[Rollout], device: torch.device) -> Batch:
        """Padding-free: one row, position ids that start at 0 with each rollout.

        transformers keeps the rollouts apart by those positions, as long as neither an attention
        mask nor a cache is given.
        """
        lengths = [len(r.prompt_ids) + len(r.completion_ids) for r in rollouts]
        offsets = [0, *accumulate(lengths)]
        ids = [i for r in rollouts for i in r.prompt_ids + r.completion_ids]
        positions = [p for length in lengths for p in range(length)]
        start = len(rollouts[0].prompt_ids) - 1
        longest = max(len(r.completion_ids) for r in rollouts)
        targets_BT = torch.zeros(len(rollouts), longest, dtype=torch.long)
        mask_BT = torch.zeros(len(rollouts), longest)
        read: list[int] = []
        for row, (rollout, offset) in enumerate(zip(rollouts, offsets, strict=False)):
            count = len(rollout.completion_ids)
            targets_BT[row, :count] = torch.tensor(rollout.completion_ids)
            mask_BT[row, :count] = 1.0
            first = offset + len(rollout.prompt_ids) - 1 - start
            read += range(first, first + count)
        return cls(
            torch.tensor([ids], device=device),
            start,
            targets_BT.to(device),
            mask_BT.to(device),
            positions=torch.tensor([positions], device=device),
            read_N=torch.tensor(read, device=device),
        )


@dataclass(frozen=True)
class TokenScores:
    """0 outside the batch's mask."""

    logprobs_BT: Tensor  # noqa: N815 - shape suffix
    entropy_BT: Tensor  # noqa: N815 - shape suffix
    """Of the whole next-token distribution; without gradient."""


def score(
    model: Any,
    batch: Batch,
    temp: float,
    *,
    backbone: BackboneAndHead | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> TokenScores:
    """One forward pass over a batch, logits only where a completion token may be predicted.

    With `backbone`, no logits tensor is larger than `chunk_bytes` in fp32.
    """
    inputs: dict[str, Any] = {"input_ids": batch.ids, "use_cache": False}
    if batch.positions is not None:
        inputs["position_ids"] = batch.positions
    if backbone is None:
        columns = torch.arange(batch.start, batch.ids.shape[1] - 1, device=batch.ids.device)
        features_RLX = forward(model, **inputs, logits_to_keep=columns)
        if not takes(model, "logits_to_keep"):
            features_RLX = features_RLX[:, columns]
    else:
        features_RLX = backbone.body(**inputs).last_hidden_state[:, batch.start : -1]
    if batch.read_N is None and (backbone is None or _fits(batch, backbone, chunk_bytes)):
        # Cheaper for short rollouts than picking the marked places out.
        return _masked(
            _read(features_RLX, batch.targets_BT, temp, backbone, chunk_bytes), batch.mask_BT
        )
    marked_BT = batch.mask_BT > 0
    features_NX = (
        features_RLX[marked_BT]
        if batch.read_N is None
        else features_RLX.flatten(0, 1)[batch.read_N]
    )
    scores_N = _read(features_NX, batch.targets_BT[marked_BT], temp, backbone, chunk_bytes)
    return _spread(scores_N, batch.mask_BT)


def _fits(batch: Batch, backbone: BackboneAndHead, chunk_bytes: int) -> bool:
    return batch.mask_BT.numel() <= rows_of(backbone.head, chunk_bytes)


def _read(
    features: Tensor,
    targets: Tensor,
    temp: float,
    backbone: BackboneAndHead | None,
    chunk_bytes: int,
) -> TokenLogprobs:
    """`features` are hidden states, or the logits of a model that cannot be cut."""
    if backbone is None:
        return full_logprobs(features, targets, temp)
    return token_logprobs(features, backbone.head, targets, temp, chunk_bytes)


def _spread(scores_N: TokenLogprobs, mask_BT: Tensor) -> TokenScores:
    """Values of the marked places, in reading order, back to (B, T)."""
    marked_BT, blank_BT = mask_BT > 0, torch.zeros_like(mask_BT)
    return TokenScores(
        blank_BT.masked_scatter(marked_BT, scores_N.logprobs),
        blank_BT.masked_scatter(marked_BT, scores_N.entropy),
    )


def _masked(scores_BT: TokenLogprobs, mask_BT: Tensor) -> TokenScores:
    """Fillers set to 0, so that no exponential of theirs can overflow."""
    padding_BT = mask_BT == 0
    return TokenScores(
        scores_BT.logprobs.masked_fill(padding_BT, 0.0),
        scores_BT.entropy.masked_fill(padding_BT, 0.0),
    )
