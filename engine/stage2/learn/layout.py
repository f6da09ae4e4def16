"""Layout: several teacher-forced sequences as the inputs of one forward pass.

Two forms. *Padded*: a row each, filled up on the right, with an attention mask. *Packed*: all in
one row without padding, told apart by a fourth row of positions that begins at 0 with each
sequence; Transformers derives the block-diagonal mask from it, when there is neither an attention
mask nor a cache. `can_pack` tries that out on the loaded model. Knows no loss.

Shapes: B rows, T positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.models.qwen3_vl import ModelError, VisionModel, forward
from engine.stage2.rollout.prompts import Pictures, join


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """Token ids with the pictures they show."""

    ids: tuple[int, ...]
    pictures: Pictures


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sequence stands in a forward pass: positions [start, end) of a row."""

    row: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Inputs of one forward pass, and where each sequence stands in it."""

    ids_BT: Tensor  # noqa: N815 - shape suffix
    position_ids: Tensor
    """[3, B, T] padded, [4, B, T] packed: text positions, then time, height and width."""
    attention_mask: Tensor | None
    pictures: Pictures
    places: tuple[Place, ...]

    def to(self, device: torch.device) -> Layout:
        """The same on another device."""
        mask = self.attention_mask
        return Layout(
            self.ids_BT.to(device),
            self.position_ids.to(device),
            None if mask is None else mask.to(device),
            Pictures(
                self.pictures.pixel_values.to(device), self.pictures.image_grid_thw.to(device)
            ),
            self.places,
        )

    def inputs(self) -> dict[str, Any]:
        """Everything but ids or embeddings."""
        return {
            "position_ids": self.position_ids,
            "attention_mask": self.attention_mask,
            "pixel_values": self.pictures.pixel_values,
            "image_grid_thw": self.pictures.image_grid_thw,
        }

    def split(self, values_BT: Tensor) -> list[Tensor]:
        """The part of each sequence, [T_i, …]; views of one tensor.

        By whole rows and whole packs: a slice for each sequence would have backward fill and add
        up a zero tensor of the full size for each of them.
        """
        if len(values_BT) == 1:
            lengths = [p.end - p.start for p in self.places]
            return list(torch.split(values_BT[0], lengths))
        return [row[: p.end] for row, p in zip(values_BT.unbind(0), self.places, strict=True)]


def padded(sequences: Sequence[ModelInputs], vlm: VisionModel, pad_id: int) -> Layout:
    """One row a sequence."""
    longest = max(len(s.ids) for s in sequences)
    rows = [list(s.ids) + [pad_id] * (longest - len(s.ids)) for s in sequences]
    mask = [[1] * len(s.ids) + [0] * (longest - len(s.ids)) for s in sequences]
    positions_3BT = torch.zeros(3, len(sequences), longest, dtype=torch.long)
    for row, sequence in enumerate(sequences):
        positions_3BT[:, row, : len(sequence.ids)] = _rope(sequence, vlm)
    return Layout(
        torch.tensor(rows),
        positions_3BT,
        torch.tensor(mask) if any(0 in row for row in mask) else None,
        _pictures(sequences),
        tuple(Place(row, 0, len(s.ids)) for row, s in enumerate(sequences)),
    ).to(vlm.device)


def packed(sequences: Sequence[ModelInputs], vlm: VisionModel) -> Layout:
    """All in one row, four rows of positions."""
    positions_4T = torch.cat(
        [torch.cat([torch.arange(len(s.ids))[None], _rope(s, vlm)]) for s in sequences],
        dim=1,
    )
    places = []
    end = 0
    for sequence in sequences:
        places.append(Place(0, end, end + len(sequence.ids)))
        end += len(sequence.ids)
    ids = [i for s in sequences for i in s.ids]
    return Layout(
        torch.tensor([ids]), positions_4T[:, None], None, _pictures(sequences), tuple(places)
    ).to(vlm.device)


def require_packing(vlm: VisionModel, probe: ModelInputs) -> None:
    """Raises ModelError unless packed sequences see neither themselves twice nor each other.

    Two copies of `probe` in one row must each give the logits that it gives alone.
    """
    was_training = vlm.model.training
    vlm.model.eval()
    try:
        with torch.inference_mode():
            alone = _logits(packed([probe], vlm), vlm.model)
            both = packed([probe, probe], vlm)
            first, second = both.split(_logits(both, vlm.model))
    finally:
        vlm.model.train(was_training)
    scale = float(alone.abs().max())
    worst = max(float((alone[0] - one).abs().max()) for one in (first, second))
    tolerance = 1e-4 if alone.dtype == torch.float32 else 5e-2
    if not worst <= tolerance * max(scale, 1.0):
        raise ModelError(
            f"training.packing: this model's attention lets packed sequences see each other "
            f"(logits differ by {worst:.2g}); set training.packing: false, "
            "or model.attn_implementation: sdpa"
        )


def _logits(layout: Layout, model: torch.nn.Module) -> Tensor:
    return forward(model, layout.inputs() | {"input_ids": layout.ids_BT})


def _rope(sequence: ModelInputs, vlm: VisionModel) -> Tensor:
    return vlm.rope_positions(torch.tensor(sequence.ids), sequence.pictures.image_grid_thw)


def _pictures(sequences: Sequence[ModelInputs]) -> Pictures:
    return join([sequence.pictures for sequence in sequences])
