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
    return render_fragment("{", objects, 1)


def render_fragment(lead: str, objects: Sequence[GTObject], first_index: int) -> Marked:
    """Entries numbered from `first_index` behind `lead`, with the closing brace."""
    stretches: list[_Stretch] = [(lead, Part.STRUCTURE, None)] if lead else []
    for owner, gt in enumerate(objects):
        stretches += _entry(gt, owner, first_index + owner)
        if owner + 1 < len(objects):
            stretches.append((", ", Part.STRUCTURE, None))
    stretches.append(("}", Part.STRUCTURE, None))
    texts, parts, owners = zip(*stretches, strict=True)
    text = "".join(texts)
    sizes = map(len, texts if text.isascii() else [stretch.encode() for stretch in texts])
    ends = list(itertools.accumulate(sizes))
    return Marked(text, tuple(map(Mark, [0, *ends], ends, parts, owners)))


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


_Stretch = tuple[str, Part, int | None]
"""Some text, what it says, and whose it is."""
_spell = json.JSONEncoder(ensure_ascii=False).encode


def _entry(gt: GTObject, owner: int, index: int) -> list[_Stretch]:
    x1, y1, x2, y2 = map(coords.token, gt.box)
    between = '", "', Part.STRUCTURE, owner
    return [
        (f'"object_{index}": {{"desc": "', Part.STRUCTURE, owner),
        (_spell(gt.desc)[1:-1], Part.DESC, owner),
        ('", "bbox_2d": ["', Part.STRUCTURE, owner),
        *((x1, Part.COORD, owner), between, (y1, Part.COORD, owner), between),
        *((x2, Part.COORD, owner), between, (y2, Part.COORD, owner)),
        ('"]}', Part.STRUCTURE, owner),
    ]
