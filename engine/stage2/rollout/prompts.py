"""Prompts: a record's pictures and question as token ids and patches.

The chat template is the checkpoint's own, and writes the only control tokens of a prompt: those in
a record's messages or in the question are read as text. Each picture's placeholder is written once
by the template and repeated here as often as the picture has image tokens. Knows no ground truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, overload

import torch
from PIL import Image
from torch import Tensor

from engine.contract.sources.ground_truth import GroundTruthError
from engine.contract.sources.records import Record
from engine.contract.stage2 import coords
from engine.models.chat import ChatTemplate, ChatTemplateError, Clock, local_now
from engine.models.qwen3_vl import VisionModel
from engine.models.text import ControlTokenError, Hide, TextCodec
from engine.run.stop import sign_of_life
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.rollout.pictures import UNREADABLE, picture, remedy, size_of
from engine.stage2.rollout.reading import Reading


@dataclass(frozen=True, slots=True)
class Pictures:
    """Patches of one sequence's pictures, ready for the vision tower."""

    pixel_values: Tensor
    """[patches, values of a patch]."""
    image_grid_thw: Tensor
    """[pictures, 3]: patches in time, height and width."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A prompt as a server is asked it: the server writes ids and patches by itself."""

    turns: tuple[Mapping[str, Any], ...] = ()
    """With `{"type": "image"}` at the place of each picture."""
    images: tuple[Path, ...] = ()
    where: str = ""
    """The record, for people."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """All that stands before the answer."""

    ids: tuple[int, ...]
    reading: Reading[Pictures]
    asked: Conversation = Conversation()

    @property
    def pictures(self) -> Pictures:
        """Read by now, or waited for. Raises GroundTruthError for one that cannot be read."""
        return self.reading.result()


@dataclass(frozen=True)
class PromptReader:
    """Turns records into prompts. `question` is asked where a record brings no messages."""

    vlm: VisionModel
    pieces: TokenPieces
    question: str
    clock: Clock = local_now
    """What the chat template is told the time is."""

    @cached_property
    def chat(self) -> ChatTemplate:
        return ChatTemplate(self.vlm.tokenizer, clock=self.clock)

    @cached_property
    def codec(self) -> TextCodec:
        """Coord tokens are no control tokens: a question may name a place by them."""
        places = [coords.token(k) for k in range(coords.LAST_BIN + 1)]
        return TextCodec(self.vlm.tokenizer, self.chat.around_turns, meant=places)

    @property
    def pad_id(self) -> int:
        """What shorter sequences of a batch are filled up with."""
        return self.pieces.pad_id

    @property
    def coord_ids_K(self) -> Tensor:  # noqa: N802 - shape suffix
        """The 1000 coord tokens, in the order of their bins."""
        return torch.tensor(self.pieces.coord_ids, device=self.vlm.device)

    def __call__(self, record: Record) -> Prompt:
        """Its pictures are read when they are asked for, or ahead of that.

        Raises GroundTruthError for one that is no picture, or one too many or too few.
        """
        sign_of_life()
        sizes = [_size(record, i) for i in range(len(record.images))]
        patches = [self._patches(record, i, *size) for i, size in enumerate(sizes)]
        turns = tuple(self._turns(record, _as_it_is))
        asked = Conversation(turns, tuple(record.images), record.where)
        reading = Reading(partial(self._pictures, record), sum(patches) * self._patch_bytes)
        return Prompt(tuple(self._expanded(record, patches)), reading, asked)

    def length(self, record: Record, sizes: Sequence[tuple[int, int]]) -> int:
        """Tokens of the prompt, from its pictures' widths and heights in pixels.

        Raises GroundTruthError, as the prompt itself would.
        """
        patches = [self._patches(record, i, *size) for i, size in enumerate(sizes)]
        return len(self._expanded(record, patches))

    def _expanded(self, record: Record, patches: Sequence[int]) -> list[int]:
        """The turns, with as many placeholders as each picture has tokens."""
        ids, placeholder = self._plain_ids(record), self.vlm.image_token_id
        places = ids.count(placeholder)
        if places != len(patches):
            raise GroundTruthError(
                record.where,
                "messages",
                f"ask for {places} pictures, images has {len(patches)}",
                'name each picture once, by a part {"type": "image"}',
            )
        expanded: list[int] = []
        tokens = (count // self.vlm.merge_area for count in patches)
        for token in ids:
            expanded += [token] * (next(tokens) if token == placeholder else 1)
        return expanded

    def _patches(self, record: Record, index: int, width: int, height: int) -> int:
        """Raises GroundTruthError for a strip, which the model's processor refuses."""
        try:
            found: int = self.vlm.image_processor.get_number_of_image_patches(height, width)
        except ValueError as error:
            raise GroundTruthError(
                record.where,
                f"images[{index}]",
                f"{record.images[index]} does not suit the model: {error}",
                "crop it, or leave the record out",
            ) from error
        return found

    def dated(self) -> dict[str, str]:
        """For the run card: the date that prompts say, where they say one."""
        return {"prompt_date": self.clock().isoformat()} if self.chat.is_dated else {}

    def held(self, record: Record) -> Sequence[str]:
        """Control tokens whose characters stand in the record's turns; they are read as text."""
        found: list[str] = []

        def look(text: str, *, own: bool = False) -> str:
            found.extend(self.codec.held(text, own=own))
            return text

        self._turns(record, look)
        return list(dict.fromkeys(found))

    def _plain_ids(self, record: Record) -> Sequence[int]:
        try:
            hidden = self.codec.protected(lambda hide: self.chat.text(self._turns(record, hide)))
            return self.codec.encode(hidden)
        except ControlTokenError as error:
            remedy = "write it otherwise, or leave the record out"
            raise GroundTruthError(record.where, "messages", str(error), remedy) from error
        except ChatTemplateError as error:
            raise GroundTruthError(
                record.where,
                "messages",
                f"are refused by the model's chat template: {error}",
                "write turns as the model's card shows them",
            ) from error

    def _turns(self, record: Record, hide: Hide) -> Sequence[Mapping[str, Any]]:
        if record.messages:
            return [_hidden(turn, hide) for turn in record.messages]
        asked = {"type": "text", "text": hide(self.question)}
        return [{"role": "user", "content": [*({"type": "image"} for _ in record.images), asked]}]

    @property
    def _patch_bytes(self) -> int:
        """In fp32, three colours, of as many frames as the processor makes of one."""
        images = self.vlm.image_processor
        return int(images.patch_size) ** 2 * 3 * int(images.temporal_patch_size) * 4

    def _pictures(self, record: Record) -> Pictures:
        images = [_open(record, i) for i in range(len(record.images))]
        made = self.vlm.image_processor(images=images, return_tensors="pt")
        return Pictures(made["pixel_values"], made["image_grid_thw"])


def _as_it_is(text: str, *, own: bool = False) -> str:  # noqa: ARG001 - as `Hide`
    return text


def _hidden(value: Any, hide: Hide) -> Any:
    """All texts of a turn; its role and the types of its parts are the template's words."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {k: v if k in {"role", "type"} else _hidden(v, hide) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(one, hide) for one in value]
    return value


@dataclass(frozen=True)
class Unread(Sequence[Prompt]):
    """The prompts of records, each read when it is asked for and not kept: patches are large."""

    reader: PromptReader
    records: Sequence[Record]

    def __len__(self) -> int:
        return len(self.records)

    @overload
    def __getitem__(self, place: int) -> Prompt: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Prompt]: ...

    def __getitem__(self, place: int | slice) -> Prompt | Sequence[Prompt]:
        if isinstance(place, slice):
            return [self.reader(record) for record in self.records[place]]
        return self.reader(self.records[place])


def _size(record: Record, index: int) -> tuple[int, int]:
    try:
        return size_of(record.images[index])
    except UNREADABLE as error:
        raise unreadable(record, index, error) from error


def _open(record: Record, index: int) -> Image.Image:
    try:
        return picture(record.images[index])
    except UNREADABLE as error:
        raise unreadable(record, index, error) from error


def unreadable(record: Record, index: int, error: Exception) -> GroundTruthError:
    """A file that Pillow could make nothing of."""
    why = str(error) or type(error).__name__
    return GroundTruthError(
        record.where,
        f"images[{index}]",
        f"{record.images[index]} cannot be read as a picture: {why}",
        remedy(error),
    )


def join(pictures: Sequence[Pictures]) -> Pictures:
    """The pictures of several sequences, in their order."""
    return Pictures(
        torch.cat([p.pixel_values for p in pictures]),
        torch.cat([p.image_grid_thw for p in pictures]),
    )
