"""Ground truth: the objects of one training record, or an error that names the bad value.

A record's `objects` hold a `desc` and one `bbox_2d`; coordinates are norm1000 integers or coord
tokens. What is wrong in the data stops the run: guessing here would train on the guess.
Knows no image and no prompt.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.contract.documents import UnreadableError, parse_json
from engine.contract.errors import NightlaneError
from engine.contract.stage2 import coords

Box = tuple[int, int, int, int]
"""x1, y1, x2, y2 as bins 0..999, with x1 <= x2 and y1 <= y2."""

STOP_TEXT = "<|im_end|>"
"""The only token that ends an assistant turn."""

_SHAPES = """
bbox box circle contour cuboid ellipse geometry keypoint landmark line linestring mask multipolygon
obb point poly polygon polyline quad quadrangle quadrilateral rbbox rbox rect rectangle rle segm
segmentation
"""
_FORMS = """
2d 3d abs absolute aligned axis coord coordinate corner cxcywh norm normalized oriented pixel rel
relative rotated xy xywh xywhr xyxy yxyx
"""
_SHAPE_WORDS, _FORM_WORDS = frozenset(_SHAPES.split()), frozenset(_FORMS.split())
_WORD = re.compile(r"[0-9]+d?|[A-Z]?[a-z]+|[A-Z]+")
_ONLY_BOX = frozenset({"bbox_2d"})


_LONG = 100
"""Letters of a key that is too long to be kept: a line of 16 MB may be one key."""


def carries_shape(key: str) -> bool:
    """Whether the name of a key says that it holds a shape; such a key beside or instead of
    `bbox_2d` is refused.

    Each word of it names a shape, the form of one or a number, and at least one a shape.

    >>> [key for key in ("polygon_2d", "rotatedBoxes", "box_color", "lined") if carries_shape(key)]
    ['polygon_2d', 'rotatedBoxes']
    """
    return _known(key) if len(key) <= _LONG else _carries_shape(key)


def _carries_shape(key: str) -> bool:
    words = [word.lower() for word in _WORD.findall(key)]
    shapes = [not _SHAPE_WORDS.isdisjoint(_singulars(word)) for word in words]
    forms = (word.isdigit() or not _FORM_WORDS.isdisjoint(_singulars(word)) for word in words)
    return any(shapes) and all(map(operator.or_, shapes, forms))


_known = functools.lru_cache(maxsize=4096)(_carries_shape)


def _singulars(word: str) -> set[str]:
    return {word, word.removesuffix("s"), word.removesuffix("es")}


class GroundTruthError(NightlaneError):
    """A record that cannot be trained on: which field, which value, what to do."""

    def __init__(self, where: str, field: str, problem: str, remedy: str) -> None:
        self.where, self.field, self.problem, self.remedy = where, field, problem, remedy
        self.what = f"{where}: {field} {problem}" if where else f"{field} {problem}"
        """The sentence without its remedy."""
        super().__init__(f"{self.what}; {remedy}")


@dataclass(frozen=True, slots=True)
class GTObject:
    """One object of the ground truth."""

    desc: str
    box: Box


def read_objects(
    record: Mapping[str, Any], where: str = "", field: str = "objects"
) -> tuple[GTObject, ...]:
    """The objects of a record, in its order. `where` (file and line) leads an error's message.

    Raises GroundTruthError at the first value that breaks a rule.

    >>> read_objects({"objects": [{"desc": "cat", "bbox_2d": [1, "<|coord_2|>", 3, 4]}]})
    (GTObject(desc='cat', box=(1, 2, 3, 4)),)
    """
    objects = record.get(field)
    if not isinstance(objects, Sequence) or isinstance(objects, str | bytes):
        raise GroundTruthError(where, field, "is not a list", "list the objects of the image")
    return tuple(_read_object(value, where, f"{field}[{i}]") for i, value in enumerate(objects))


def payload_objects(payload: Any, where: str) -> list[Any]:
    """The objects of `assistant_payload`: the answer's JSON, as text or loaded, in its order.

    Raises GroundTruthError. A null is what a table writes where a record has fewer objects.

    >>> payload_objects('{"object_1": {"desc": "cat"}, "object_2": null}', "")
    [{'desc': 'cat'}]
    """
    problem = f"{str(payload)[:80]!r} is no JSON object"
    try:
        loaded = parse_json(payload) if isinstance(payload, str) else payload
    except UnreadableError as error:
        loaded, problem = None, str(error)
    if not isinstance(loaded, Mapping):
        remedy = 'write {"object_1": {"desc": …, "bbox_2d": […]}, …}'
        raise GroundTruthError(where, "assistant_payload", problem, remedy)
    return [one for one in loaded.values() if one is not None]


def _read_object(value: Any, where: str, field: str) -> GTObject:
    if not isinstance(value, Mapping):
        raise GroundTruthError(where, field, "is not an object", "give it a desc and a bbox_2d")
    desc = _read_desc(value.get("desc"), where, f"{field}.desc")
    # a table writes null into the columns that a row does not use
    shapes = {
        key for key in value if carries_shape(key) and (value[key] is not None or key in _ONLY_BOX)
    }
    if shapes != _ONLY_BOX:
        found = ", ".join(sorted(shapes)) or "none"
        raise GroundTruthError(
            where, field, f"must hold bbox_2d as its only geometry, not {found}", "convert it first"
        )
    return GTObject(desc, _read_box(value["bbox_2d"], where, f"{field}.bbox_2d"))


def _read_desc(desc: Any, where: str, field: str) -> str:
    if not isinstance(desc, str) or not desc.strip():
        raise GroundTruthError(where, field, f"{desc!r} is blank or no text", "describe the object")
    if STOP_TEXT in desc:
        raise GroundTruthError(where, field, f"contains {STOP_TEXT}", "remove it: it ends the turn")
    try:
        desc.encode()
    except UnicodeEncodeError:
        raise GroundTruthError(
            where, field, f"{desc!r} is not valid Unicode", "remove the lone surrogate"
        ) from None
    return desc


def _read_box(values: Any, where: str, field: str) -> Box:
    if not isinstance(values, Sequence) or isinstance(values, str | bytes) or len(values) != 4:
        raise GroundTruthError(
            where, field, f"{values!r} is not a list of 4 coordinates", "give x1, y1, x2, y2"
        )
    x1, y1, x2, y2 = box = tuple(
        _read_bin(value, where, field, i) for i, value in enumerate(values)
    )
    if max(box) <= 1 and not all(map(_is_whole, values)):
        raise GroundTruthError(
            where,
            field,
            f"{list(values)} looks like shares of the picture, 0 to 1",
            f"give thousandths: round({coords.LAST_BIN} * x) of each",
        )
    if x2 < x1 or y2 < y1:
        raise GroundTruthError(
            where,
            field,
            f"{[x1, y1, x2, y2]} is out of order",
            "give x1 <= x2 and y1 <= y2; of x, y, width and height give x, y, x + width, "
            "y + height",
        )
    return x1, y1, x2, y2


def _is_whole(value: Any) -> bool:
    """A coordinate that was written without a fraction."""
    return (isinstance(value, str) and coords.bin_of(value) is not None) or float(value) % 1 == 0


def _read_bin(value: Any, where: str, box: str, place: int) -> int:
    """A coord token, or int(round(float(x))) with Python's rounding half to even."""
    if type(value) is int and 0 <= value <= coords.LAST_BIN:
        return value  # nearly all of them, and a corpus has millions
    field = f"{box}[{place}]"
    token_bin = coords.bin_of(value) if isinstance(value, str) else None
    if token_bin is not None:
        return token_bin
    try:
        k = round(float("a boolean" if isinstance(value, bool) else value))
    except (TypeError, ValueError, OverflowError):
        raise GroundTruthError(
            where, field, f"{value!r} is no coordinate", "give a norm1000 integer or a coord token"
        ) from None
    if not 0 <= k <= coords.LAST_BIN:
        raise GroundTruthError(
            where,
            field,
            f"{value!r} is outside 0..{coords.LAST_BIN}",
            f"give norm1000 coordinates: of pixels round({coords.LAST_BIN} * x / width), of 0 to "
            f"{coords.BIN_COUNT} round({coords.LAST_BIN / coords.BIN_COUNT} * x)",
        )
    return k
