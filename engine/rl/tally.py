"""What a trainer measures while it updates, summed over micro-batches and updates.

Shapes: B rollouts, T completion positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.rl.farthest import Farthest
from engine.sampling.base import Rollout
from engine.sampling.contradiction import Evidence


@dataclass
class Tally:
    """Sums over one step; `metrics` turns them into the step's series."""

    loss: float = 0.0
    kl: float = 0.0
    farthest: Farthest | None = None
    """Of all its tokens."""
    entropy: float = 0.0
    rollouts: int = 0
    """Rollouts that went into an update, counted once an update."""
    tokens: float = 0.0
    clipped: float = 0.0
    """Tokens whose gradient the clip bound took away; with cispo, whose weight it capped."""
    grad_norm: float = 0.0
    """The largest of the step's updates, before clipping."""
    updates: int = 0
    skipped: int = 0
    """Updates left out because a number was not finite."""
    first_ratio_error: float = 0.0
    """Largest |ratio − 1| in the first update: 0 on-policy."""

    def take(self, update: Tally) -> None:
        """Add an update that was applied."""
        if not self.updates:
            self.first_ratio_error = update.first_ratio_error
        self.loss += update.loss
        self.kl += update.kl
        self.look_farther(update.farthest)
        self.entropy += update.entropy
        self.rollouts += update.rollouts
        self.tokens += update.tokens
        self.clipped += update.clipped
        self.grad_norm = max(self.grad_norm, update.grad_norm)
        self.updates += update.updates

    @classmethod
    def of_all(cls, everybody: Sequence[Tally]) -> Tally:
        """One update's sums over all ranks; of one rank its own."""
        first, *others = everybody
        for one in others:
            first.loss += one.loss
            first.kl += one.kl
            first.look_farther(one.farthest)
            first.entropy += one.entropy
            first.tokens += one.tokens
            first.clipped += one.clipped
            first.first_ratio_error = max(first.first_ratio_error, one.first_ratio_error)
        return first

    def look_farther(self, found: Farthest | None) -> None:
        """Keep the one with the larger KL."""
        if found is not None and (self.farthest is None or found.kl > self.farthest.kl):
            self.farthest = found

    def metrics(self) -> dict[str, float]:
        """Means over rollouts, tokens and updates; a step that applied none has measured none."""
        if not self.updates:
            return {"train/updates": 0.0}
        return {
            "train/loss": self.loss / self.updates,
            "train/kl": self.kl / self.rollouts,
            "train/kl_max": 0.0 if self.farthest is None else self.farthest.kl,
            "train/entropy": self.entropy / self.rollouts,
            "train/grad_norm": self.grad_norm,
            "train/updates": float(self.updates),
        }

    def ratio_metrics(self) -> dict[str, float]:
        """Of a loss with a ratio."""
        return {
            "train/clip_fraction": self.clipped / max(1.0, self.tokens),
            "train/ratio_error_first": self.first_ratio_error,
        }


@dataclass
class SamplerGap:
    """How far the sampler's log-probabilities lie from the trainer's, over the tokens trained on.

    With δ = log π_trainer − log π_sampler: the largest and the mean |δ|, and the mean of
    exp(δ) − δ − 1, which estimates KL(sampler ‖ trainer). These are over tokens that the step's
    own weights sampled: what is read again from the buffer lies apart by design. The importance
    weights are those of all tokens.
    """

    evidence: Evidence
    """Of the same rollouts, one by one."""
    tokens: float = 0.0
    largest: float = 0.0
    total: float = 0.0
    kl: float = 0.0
    weighed: float = 0.0
    """Tokens with an importance weight."""
    weights: float = 0.0
    """Their sum."""
    capped: float = 0.0
    """Tokens whose weight stood at the cap."""

    @classmethod
    def of_all(cls, everybody: Sequence[SamplerGap]) -> SamplerGap:
        """That of all ranks; of one rank its own."""
        if len(everybody) == 1:
            return everybody[0]
        found = cls(Evidence(everybody[0].evidence.limit))
        for one in everybody:
            found.evidence.take(one.evidence)
            found.tokens += one.tokens
            found.largest = max(found.largest, one.largest)
            found.total += one.total
            found.kl += one.kl
            found.weighed += one.weighed
            found.weights += one.weights
            found.capped += one.capped
        return found

    def add(self, delta_BT: Tensor, mask_BT: Tensor, counts_B: Tensor) -> None:
        """Take up a micro-batch; δ is 0 outside the mask. A count of 0 leaves a rollout out."""
        counts_BT = mask_BT * counts_B[:, None]
        magnitude_BT = delta_BT.abs()
        self.tokens += counts_BT.sum().item()
        self.largest = max(self.largest, (magnitude_BT * (counts_BT > 0)).max().item())
        self.total += (magnitude_BT * counts_BT).sum().item()
        self.kl += ((torch.expm1(delta_BT) - delta_BT) * counts_BT).sum().item()

    def hold(
        self, rollouts: Sequence[Rollout], delta_BT: Tensor, fresh_B: Tensor, mask_BT: Tensor
    ) -> None:
        """Take the rollouts of a micro-batch up as evidence, those by the step's own weights."""
        apart_B = (delta_BT.abs() * mask_BT).sum(-1).tolist()
        for rollout, apart, fresh in zip(rollouts, apart_B, fresh_B.tolist(), strict=True):
            if fresh:
                self.evidence.add(rollout, apart)

    def add_weights(
        self, weights_BT: Tensor, cap: float, mask_BT: Tensor, counts_B: Tensor
    ) -> None:
        """Take up the importance weights of a micro-batch."""
        counts_BT = mask_BT * counts_B[:, None]
        self.weighed += counts_BT.sum().item()
        self.weights += (weights_BT * counts_BT).sum().item()
        self.capped += ((weights_BT >= cap) * counts_BT).sum().item()

    def metrics(self) -> dict[str, float]:
        """Empty when the rollouts carried no log-probabilities."""
        found: dict[str, float] = {}
        if self.tokens:
            found["train/sampler_gap_max"] = self.largest
            found["train/sampler_gap_mean"] = self.total / self.tokens
            found["train/sampler_kl"] = self.kl / self.tokens
        if self.weighed:
            found["train/tis_weight"] = self.weights / self.weighed
            found["train/tis_capped"] = self.capped / self.weighed
        return {name: value for name, value in found.items() if math.isfinite(value)}
