"""The proof that a server answers with the trainer's weights: log-probabilities, side by side.

A 200 of a weight route proves nothing. At fixed contexts (prompts of the run) the server tells the
likeliest next tokens with their log-probabilities, and the trainer's own model is asked for the
same numbers, with the weights of now and with those before the sync. Knows no route and no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.models.logprobs import log_softmax
from engine.models.policy import Policy

TOP = 20
"""Likeliest tokens compared at each context."""
CONTEXTS = 8


@dataclass(frozen=True)
class Compared:
    """Mean absolute differences of log-probabilities, in nats a token."""

    gap: float
    """Server against trainer, now."""
    moved: float | None
    """What the weights' change moved on the same tokens; None where nothing was known before."""
    gap_before: float | None
    """Server against the trainer's weights of before."""

    @property
    def stale(self) -> bool:
        """Whether the server still answers with the weights of before.

        Told only where the change is larger than what separates two exact programs.
        """
        if self.moved is None or self.gap_before is None:
            return False
        return self.gap_before < self.moved / 2 < self.gap


class ParityCheck:
    """The trainer's side: next-token log-probabilities at the contexts, now and before."""

    def __init__(self, policy: Policy, contexts: Sequence[tuple[int, ...]]) -> None:
        self.contexts = tuple(contexts)[:CONTEXTS]
        self._policy = policy
        self._before_CV: Tensor | None = None
        self.top = min(TOP, int(policy.model.config.get_text_config().vocab_size))

    def read(self) -> None:
        """Ask the trainer's own model, with the weights of this moment."""
        self._now_CV = self._read()

    def keep(self) -> None:
        """The weights of the last `read` are served: they are those of before at the next one."""
        self._before_CV = self._now_CV

    def compare(self, told: Sequence[Mapping[int, float]]) -> Compared:
        """With the last `read`. `told`: by context, log-probabilities at temperature 1 by token."""
        gaps, moves, gaps_before = [], [], []
        for row, values in enumerate(told):
            tokens = torch.tensor(list(values))
            server = torch.tensor(list(values.values()))
            now = self._now_CV[row, tokens]
            gaps.append((server - now).abs())
            if self._before_CV is not None:
                before = self._before_CV[row, tokens]
                moves.append((before - now).abs())
                gaps_before.append((server - before).abs())
        return Compared(_mean(gaps) or 0.0, _mean(moves), _mean(gaps_before))

    @torch.inference_mode()
    def _read(self) -> Tensor:
        """Shape (contexts, vocabulary), on the CPU."""
        rows = []
        with self._policy.computing():
            for ids in self.contexts:
                batch = torch.tensor([ids], device=self._policy.device)
                logits = self._policy.model(input_ids=batch, use_cache=False).logits
                rows.append(log_softmax(logits[0, -1], 1.0).float().cpu())
        return torch.stack(rows)


def _mean(parts: Sequence[Tensor]) -> float | None:
    return torch.cat(list(parts)).mean().item() if parts else None
