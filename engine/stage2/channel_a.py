"""Channel-A: teacher forcing on the ground truth, with a soft context instead of exact boxes.

Forward m = 0 reads the ground truth's tokens. Each further one reads the same tokens, but at
every coord slot the embedding expected under the distribution that the forward before it
predicted there (from the logits at p - 1). Text is learnt from the first forward, boxes from the
last; unrolled, gradients run through all of them. Knows no rollout.

Shapes: B rows, T positions, V vocabulary, H hidden, S coord slots, K = 1000 bins.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from engine.contract.sources.ground_truth import GTObject
from engine.models.qwen3_vl import VisionModel, forward
from engine.stage2.learn.layout import Layout
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.target.payload import Part, encode_marked, render
from engine.stage2.target.segments import CoordSlots, Segment, stretch_of_each

GradMode = Literal["unroll", "em_detach"]


@dataclass(frozen=True, slots=True)
class SoftContext:
    """Knobs of the iteration."""

    iterations: int
    """Full forwards; 1 is plain teacher forcing."""
    grad_mode: GradMode
    temperature: float
    """Shapes the soft context, never the decode."""


def build_segment(
    prompt_ids: Sequence[int], gt: Sequence[GTObject], desc_weight: float, pieces: TokenPieces
) -> Segment:
    """The ground truth in its own order: text to learn by CE, every box by geometry.

    Coord tokens weigh 0 in CE; the end of the turn is learnt here, as stage 1 did.
    """
    rendered = render(gt)
    ids = encode_marked(pieces, rendered)
    stretches = stretch_of_each(pieces.of_all(ids), rendered.ends, rendered.parts)
    parts = [rendered.parts[stretch] for stretch in stretches.tolist()]
    weight = {Part.STRUCTURE: 1.0, Part.DESC: desc_weight}
    weights = [weight.get(part, 0.0) for part in parts]
    offset = len(prompt_ids)
    slots = []
    positions = (index for index, part in enumerate(parts, offset) if part is Part.COORD)
    for one in gt:
        p1, p2, p3, p4 = itertools.islice(positions, 4)
        slots.append(CoordSlots((p1, p2, p3, p4), one.box))
    return Segment(
        (*prompt_ids, *ids, pieces.end_id), (*[0.0] * offset, *weights, 1.0), tuple(slots)
    )


def answer_length(gt: Sequence[GTObject], pieces: TokenPieces) -> int:
    """Tokens that `build_segment` puts behind the prompt."""
    return len(encode_marked(pieces, render(gt))) + 1


def run(
    layout: Layout,
    slots_S2: Tensor,
    vlm: VisionModel,
    coord_ids_K: Tensor,
    how: SoftContext,
) -> tuple[Tensor, Tensor]:
    """Logits of the first and of the last forward, [B, T, V]; one tensor when there is one.

    `slots_S2` are (row, position) of every coord slot.
    """
    first = logits = forward(
        vlm.model, layout.inputs() | {"inputs_embeds": vlm.embed(layout.ids_BT)}
    )
    for _ in range(how.iterations - 1):
        soft_SH = expected_embeddings(logits, slots_S2, vlm, coord_ids_K, how.temperature)
        if how.grad_mode == "em_detach":
            soft_SH = soft_SH.detach()
        embeds_BTH = with_slots(vlm.embed(layout.ids_BT), slots_S2, soft_SH)
        logits = forward(vlm.model, layout.inputs() | {"inputs_embeds": embeds_BTH})
    return first, logits


def expected_embeddings(
    logits_BTV: Tensor,
    slots_S2: Tensor,
    vlm: VisionModel,
    coord_ids_K: Tensor,
    temperature: float,
) -> Tensor:
    """sum_k p(k) e_k of each slot, [S, H]; p from the logits before the slot, e by the module."""
    logits_SK = logits_BTV[slots_S2[:, 0], slots_S2[:, 1] - 1][:, coord_ids_K]
    at_least_float = logits_SK if logits_SK.dtype == torch.float64 else logits_SK.float()
    p_SK = (at_least_float / temperature).softmax(-1)
    table_KH = vlm.embed(coord_ids_K)
    return p_SK.to(table_KH) @ table_KH


def with_slots(base_BTH: Tensor, slots_S2: Tensor, soft_SH: Tensor) -> Tensor:
    """`base` with other rows at the slots; every other row is the same, bit for bit."""
    return base_BTH.index_put((slots_S2[:, 0], slots_S2[:, 1]), soft_SH.to(base_BTH))


def slot_places(layout: Layout, segments: Sequence[Segment]) -> Tensor:
    """(row, position) in the layout of every coord slot of its segments, [S, 2]."""
    found = [
        (place.row, place.start + position)
        for place, segment in zip(layout.places, segments, strict=True)
        for slot in segment.slots
        for position in slot.positions
    ]
    return torch.tensor(found, dtype=torch.long, device=layout.ids_BT.device).reshape(-1, 2)
