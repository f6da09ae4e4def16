"""How rollout matching learns: cross-entropy and coord loss, each over the whole step.

CE is the weighted sum over all tokens by the sum of their weights, the coord loss the mean over all
supervised slots, matched and appended in one pool: both over the optimizer step and all ranks. So
the sums of a step are known before its first forward, and each forward adds its share. Knows no
optimizer and no rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.contract.stage2.coord_soft_ce_w1 import CoordSoftCEW1Config
from engine.models.qwen3_vl import forward
from engine.run.stop import check_abort
from engine.stage2.learn.coord_distribution import coord_loss
from engine.stage2.learn.learner import Layouts
from engine.stage2.rollout_step import TrainingSequence
from engine.stage2.target.segments import Segment


@dataclass(frozen=True, slots=True)
class Sums:
    """What both losses are divided by."""

    weights: float = 0.0
    """Of all tokens with a weight in CE."""
    slots: int = 0
    """Supervised coord tokens."""

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> Sums:
        """Of some sequences. What stands first in one is predicted by nothing."""
        weights = sum(sum(one.ce_weights[1:]) for one in segments)
        return cls(weights, sum(4 * len(one.slots) for one in segments))

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.weights + other.weights, self.slots + other.slots)


@dataclass(slots=True)
class MatchingStats:
    """A window's shares of the step's losses, on this rank."""

    ce: float = 0.0
    soft_ce: float = 0.0
    w1: float = 0.0
    gate: float = 0.0
    coord: float = 0.0
    not_finite: int = 0
    forwards: int = 0
    segments: int = 0
    fills: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class MatchingLearner:
    """Adds gradients to the parameters of `layouts.vlm`."""

    layouts: Layouts
    coord_ids_K: Tensor  # noqa: N815 - shape suffix
    config: CoordSoftCEW1Config

    def __call__(self, sequences: Sequence[TrainingSequence], sums: Sums) -> MatchingStats:
        """Each forward's share of the step's loss. `sums`: of the whole step and all ranks."""
        found = MatchingStats(segments=len(sequences))
        for part, layout in self.layouts(sequences, found.fills):
            check_abort()
            model = self.layouts.vlm.model
            logits = forward(model, layout.inputs() | {"input_ids": layout.ids_BT})
            total = logits.new_zeros((), dtype=torch.promote_types(logits.dtype, torch.float32))
            for one, logits_TV in zip(part, layout.split(logits), strict=True):
                total = total + self._of_segment(one.segment, logits_TV, sums, found)
            if total.requires_grad:
                total.backward()  # type: ignore[no-untyped-call]
            found.forwards += 1
        return found

    def _of_segment(
        self, segment: Segment, logits_TV: Tensor, sums: Sums, found: MatchingStats
    ) -> Tensor:
        device = logits_TV.device
        ids_T = torch.tensor(segment.ids, device=device)
        ce = weighted_sum(logits_TV, ids_T, torch.tensor(segment.ce_weights, device=device))
        ce = ce / max(sums.weights, 1e-12)
        slots = [pair for slot in segment.slots for pair in zip(*slot, strict=True)]
        positions_S, bins_S = torch.tensor(slots, device=device).long().reshape(-1, 2).unbind(-1)
        coord = coord_loss(logits_TV, positions_S, bins_S, self.coord_ids_K, self.config)
        whole = coord.total(self.config) / max(sums.slots, 1)
        found.ce += float(ce.detach())
        found.coord += float(whole.detach())
        for name in ("soft_ce", "w1", "gate"):
            share = float(getattr(coord, name).detach()) / max(sums.slots, 1)
            setattr(found, name, getattr(found, name) + share)
        found.not_finite += coord.not_finite
        return ce + whole


def weighted_sum(logits_TV: Tensor, ids_T: Tensor, weights_T: Tensor) -> Tensor:
    """Sum of weighted CE; the token at p is predicted from the logits at p - 1. Only rows with a
    weight are read. Scalar, float32 at least.
    """
    rows = weights_T[1:].nonzero().squeeze(-1)
    logits = logits_TV[rows]
    logits = logits if logits.dtype == torch.float64 else logits.float()
    ce = F.cross_entropy(logits, ids_T[rows + 1], reduction="none")
    return (ce * weights_T[rows + 1].to(ce)).sum()
