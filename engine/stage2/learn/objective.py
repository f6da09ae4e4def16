"""The objective of a window: CE and both geometry terms of each sequence, summed.

A window's loss is the mean over its samples. Each forward adds its sum to the gradients, and the
update divides by the samples of the whole window over all ranks, so that neither packs nor ranks
change it. Knows no channel: a segment says by its weights and slots what it teaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.stage2.learn.layout import Layout
from engine.stage2.learn.losses import geometry_loss, slot_tensors, weighted_ce
from engine.stage2.target.segments import Segment


@dataclass(frozen=True, slots=True)
class LossWeights:
    """Factors of the geometry terms; CE has its own in each segment."""

    smoothl1: float
    ciou: float
    coord_mass: float = 0.0


@dataclass(slots=True)
class Terms:
    """Sums over the sequences of a forward, later of a window; floats once detached."""

    ce: float = 0.0
    smoothl1: float = 0.0
    ciou: float = 0.0
    coord_mass: float = 0.0
    not_finite: int = 0
    """Boxes whose logits were not finite; they count 0."""

    def add(self, other: Terms) -> None:
        self.ce += other.ce
        self.smoothl1 += other.smoothl1
        self.ciou += other.ciou
        self.coord_mass += other.coord_mass
        self.not_finite += other.not_finite

    def total(self, weights: LossWeights) -> float:
        boxes = weights.smoothl1 * self.smoothl1 + weights.ciou * self.ciou
        return self.ce + boxes + weights.coord_mass * self.coord_mass


def objective(
    layout: Layout,
    segments: Sequence[Segment],
    logits: tuple[Tensor, Tensor],
    weights: LossWeights,
    coord_ids_K: Tensor,
) -> tuple[Tensor, Terms]:
    """The sum to differentiate, and its terms: CE from the first logits, boxes from the last."""
    first_BTV, last_BTV = logits
    total = last_BTV.new_zeros((), dtype=torch.promote_types(last_BTV.dtype, torch.float32))
    terms = Terms()
    parts = zip(segments, layout.split(first_BTV), layout.split(last_BTV), strict=True)
    for segment, first_TV, last_TV in parts:
        loss, found = _of_segment(segment, first_TV, last_TV, weights, coord_ids_K)
        total = total + loss
        terms.add(found)
    return total, terms


def _of_segment(
    segment: Segment, first_TV: Tensor, last_TV: Tensor, weights: LossWeights, coord_ids_K: Tensor
) -> tuple[Tensor, Terms]:
    device = last_TV.device
    ids_T = torch.tensor(segment.ids, device=device)
    ce = weighted_ce(first_TV, ids_T, torch.tensor(segment.ce_weights, device=device))
    slots = [(slot.positions, slot.box) for slot in segment.slots]
    positions_N4, boxes_N4 = slot_tensors(slots, device)
    boxes = geometry_loss(last_TV, positions_N4, boxes_N4, coord_ids_K)
    mass = missing_coord_mass(last_TV, positions_N4, coord_ids_K)
    loss = ce + weights.smoothl1 * boxes.smoothl1 + weights.ciou * boxes.ciou
    loss = loss + weights.coord_mass * mass
    return loss, Terms(
        float(ce.detach()),
        float(boxes.smoothl1.detach()),
        float(boxes.ciou.detach()),
        float(mass.detach()),
        boxes.not_finite,
    )


def missing_coord_mass(logits_TV: Tensor, positions_N4: Tensor, coord_ids_K: Tensor) -> Tensor:
    """Mean over slots of -log P(the next token is any coord token), from the logits at p - 1.

    A regulariser of the distribution: it says nothing about which coord token. No slot: 0; a slot
    whose logits are not finite counts 0.
    """
    at_slots = logits_TV[(positions_N4 - 1).flatten()].float()
    finite = at_slots[at_slots.isfinite().all(-1)]
    missing = finite.logsumexp(-1) - finite[:, coord_ids_K].logsumexp(-1)
    return missing.sum() / max(len(at_slots), 1)
