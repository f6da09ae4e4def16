"""Payload: ground truth as the canonical assistant JSON, byte for byte, and as token ids.

`{"object_1": {"desc": "cat", "bbox_2d": ["<|coord_1|>", …]}, "object_2": …}`, separators `", "`
and `": "`, non-ASCII kept. Each text comes with the marks that say which bytes are description,
coordinate or structure, and whose. Knows no rollout.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from engine.contract.errors import NightlaneError
from engine.stage2 import coords
from engine.stage2.ground_truth import GTObject
from engine.stage2.pieces import TokenPieces


class Part(StrEnum):
    """What a stretch of assistant text says; in ascending precedence where a token holds two."""

    TEXT = "text"
    STRUCTURE = "structure"
    DESC = "desc"
    COORD = "coord"
    STOP = "stop"


class Mark(NamedTuple):
    """Bytes [start, end) of a text: what they say, and which object they belong to."""

    start: int
    end: int
    part: Part
    owner: int | None = None


@dataclass(frozen=True, slots=True)
class Marked:
    """A text with marks that cover it without gap or overlap."""

    text: str
    marks: tuple[Mark, ...]


class PayloadError(NightlaneError):
    """Ground truth that this tokenizer would turn into something other than text."""


def render(objects: Sequence[GTObject]) -> Marked:
    """The whole assistant payload of `objects`, numbered from 1.

    >>> render([GTObject("cat", (0, 1, 2, 999))]).text[:32]
    '{"object_1": {"desc": "cat", "bb'
    """
    return _assemble(["{", *_entries(objects, 1), "}"])


def render_fragment(lead: str, objects: Sequence[GTObject], first_index: int) -> Marked:
    """Entries numbered from `first_index` behind `lead`, with the closing brace."""
    return _assemble([lead, *_entries(objects, first_index), "}"])


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
            f"a description holds {spelling}, which the tokenizer reads as a special token; "
            "remove it from the ground truth"
        )
    return ids


_Pieces = str | tuple[str, Part, int]


def _entries(objects: Sequence[GTObject], first_index: int) -> Iterable[_Pieces]:
    for owner, gt in enumerate(objects):
        if owner:
            yield ", "
        yield f'"object_{first_index + owner}": {{"desc": "', Part.STRUCTURE, owner
        yield json.dumps(gt.desc, ensure_ascii=False)[1:-1], Part.DESC, owner
        yield '", "bbox_2d": ["', Part.STRUCTURE, owner
        for axis, k in enumerate(gt.box):
            if axis:
                yield '", "', Part.STRUCTURE, owner
            yield coords.token(k), Part.COORD, owner
        yield '"]}', Part.STRUCTURE, owner


def _assemble(parts: Iterable[_Pieces]) -> Marked:
    texts: list[str] = []
    marks: list[Mark] = []
    end = 0
    for item in parts:
        text, part, owner = (item, Part.STRUCTURE, None) if isinstance(item, str) else item
        if not text:
            continue
        start, end = end, end + len(text.encode())
        texts.append(text)
        marks.append(Mark(start, end, part, owner))
    return Marked("".join(texts), tuple(marks))
