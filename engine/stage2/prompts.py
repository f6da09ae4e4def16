"""Prompts: a record's pictures and question as token ids and patches.

The chat template is the checkpoint's own. Each picture's placeholder is written once by the
template and repeated here as often as the picture has image tokens. Knows no ground truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from engine.contract.stage2.ground_truth import GroundTruthError
from engine.contract.stage2.records import Record
from engine.models.qwen3_vl import VisionModel
from engine.stage2.pieces import TokenPieces


@dataclass(frozen=True, slots=True)
class Pictures:
    """Patches of one sequence's pictures, ready for the vision tower."""

    pixel_values: Tensor
    """[patches, values of a patch]."""
    image_grid_thw: Tensor
    """[pictures, 3]: patches in time, height and width."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """All that stands before the answer."""

    ids: tuple[int, ...]
    pictures: Pictures


@dataclass(frozen=True)
class PromptReader:
    """Turns records into prompts. `question` is asked where a record brings no messages."""

    vlm: VisionModel
    pieces: TokenPieces
    question: str

    def __call__(self, record: Record) -> Prompt:
        """Raises GroundTruthError for a picture that cannot be read, or one too many or too few."""
        pictures = self._pictures(record)
        tokens = (pictures.image_grid_thw.prod(-1) // self.vlm.merge_area).tolist()
        ids = self._plain_ids(record)
        places = [i for i, token in enumerate(ids) if token == self.vlm.image_token_id]
        if len(places) != len(tokens):
            raise GroundTruthError(
                record.where,
                "messages",
                f"ask for {len(places)} pictures, images has {len(tokens)}",
                "name each picture once",
            )
        expanded: list[int] = []
        counts = iter(tokens)
        for token in ids:
            expanded += [token] * (next(counts) if token == self.vlm.image_token_id else 1)
        return Prompt(tuple(expanded), pictures)

    def _plain_ids(self, record: Record) -> Sequence[int]:
        turns: Sequence[Mapping[str, Any]] = record.messages or [
            {
                "role": "user",
                "content": [
                    *({"type": "image"} for _ in record.images),
                    {"type": "text", "text": self.question},
                ],
            }
        ]
        text = self.vlm.tokenizer.apply_chat_template(
            list(turns), tokenize=False, add_generation_prompt=True
        )
        ids: list[int] = self.vlm.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _pictures(self, record: Record) -> Pictures:
        images = [_open(record, i) for i in range(len(record.images))]
        made = self.vlm.image_processor(images=images, return_tensors="pt")
        return Pictures(made["pixel_values"], made["image_grid_thw"])


def _open(record: Record, index: int) -> Image.Image:
    path = record.images[index]
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise GroundTruthError(
            record.where,
            f"images[{index}]",
            f"{path} cannot be read as a picture: {type(error).__name__}",
            "save it again as PNG or JPEG",
        ) from error


def join(pictures: Sequence[Pictures]) -> Pictures:
    """The pictures of several sequences, in their order."""
    return Pictures(
        torch.cat([p.pixel_values for p in pictures]),
        torch.cat([p.image_grid_thw for p in pictures]),
    )
