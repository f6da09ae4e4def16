"""Payload: ground truth as the canonical assistant JSON, byte for byte, and as token ids.

`{"object_1": {"desc": "cat", "bbox_2d": ["<|coord_1|>", …]}, "object_2": …}`, separators `", "`
and `": "`, non-ASCII kept. Each text comes with the marks that say which bytes are description,
coordinate or structure, and whose. Knows no rollout.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from engine.contract.errors import NightlaneError
from engine.contract.sources.ground_truth import GTObject
from engine.contract.stage2 import coords
from engine.stage2.parse.pieces import TokenPieces


class Part(StrEnum):
    """What a stretch of assistant text says; in ascending precedence where a token holds two."""

    TEXT = "text"
    STRUCTURE = "structure"
    DESC = "desc"
    COORD = "coord"
    STOP = "stop"

    rank: int
    """Place in that precedence."""

    def __init__(self, _spelling: str) -> None:
        self.rank = len(type(self).__members__)


class Mark(NamedTuple):
    """Bytes [start, end) of a text: what they say, and which object they belong to."""

    start: int
    end: int
    part: Part
    owner: int | None = None


@dataclass(frozen=True, slots=True)
class Marked:
    """A text as stretches that cover it without gap or overlap, one column for each property."""

    text: str
    ends: tuple[int, ...]
    """Where each stretch ends, in bytes."""
    parts: tuple[Part, ...]
    owners: tuple[int | None, ...]

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The stretches, one by one."""
        return tuple(map(Mark, (0, *self.ends), self.ends, self.parts, self.owners))


class PayloadError(NightlaneError):
    """Ground truth that this tokenizer would turn into something other than text."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(f"{problem}; {remedy}")


def render(objects: Sequence[GTObject]) -> Marked:
    """The whole assistant payload of `objects`, numbered from 1.

    >>> render([GTObject("cat", (0, 1, 2, 999))]).text[:32]
    '{"object_1": {"desc": "cat", "bb'
    """
    return render_fragment("{", objects, 1)


def render_fragment(lead: str, objects: Sequence[GTObject], first_index: int) -> Marked:
    """Entries numbered from `first_index` behind `lead`, with the closing brace."""
    texts = [lead] if lead else []
    parts = [Part.STRUCTURE] * len(texts)
    owners: list[int | None] = [None] * len(texts)
    for owner, gt in enumerate(objects):
        separator = ", " if owner + 1 < len(objects) else "}"
        texts += [*_entry(gt, first_index + owner), separator]
        parts += _ENTRY_PARTS
        owners += [*[owner] * (len(_ENTRY_PARTS) - 1), None]
    if not objects:
        texts, parts, owners = [*texts, "}"], [*parts, Part.STRUCTURE], [*owners, None]
    text = "".join(texts)
    sizes = map(len, texts if text.isascii() else map(str.encode, texts))
    return Marked(text, tuple(itertools.accumulate(sizes)), tuple(parts), tuple(owners))


def encode(pieces: TokenPieces, objects: Sequence[GTObject]) -> tuple[int, ...]:
    """Token ids of the payload; their pieces are its bytes. Raises PayloadError."""
    return encode_marked(pieces, render(objects))


def encode_marked(pieces: TokenPieces, marked: Marked) -> tuple[int, ...]:
    """Token ids of a rendered text. Raises PayloadError for a special token in a description."""
    ids = pieces.encode(marked.text)
    strays = sorted(pieces.reserved.intersection(ids))
    if strays:
        spelling = pieces.of(strays[0]).decode(errors="replace")
        raise PayloadError(
            f"hold {spelling} in a description, which the tokenizer reads as a special token",
            "remove it from the ground truth",
        )
    return ids


_spell = json.JSONEncoder(ensure_ascii=False).encode


def _entry(gt: GTObject, index: int) -> tuple[str, ...]:
    """The stretches of one entry; `_ENTRY_PARTS` says what each is."""
    x1, y1, x2, y2 = map(coords.token, gt.box)
    between = '", "'
    return (
        f'"object_{index}": {{"desc": "',
        _spell(gt.desc)[1:-1],
        '", "bbox_2d": ["',
        *(x1, between, y1, between, x2, between, y2),
        '"]}',
    )


_ENTRY_PARTS = (
    *(Part.STRUCTURE, Part.DESC, Part.STRUCTURE),
    *(Part.COORD, Part.STRUCTURE) * 4,
    Part.STRUCTURE,
)
"""Of an entry and of the separator or brace behind it."""
