"""ms-swift's form of objects: lists of names and of boxes, as objects of ours.

`{"ref": ["cat", "dog"], "bbox": [[x1, y1, x2, y2], …], "bbox_type": "real"}`: the n-th name is the
n-th box's, one name stands for all boxes. Boxes count pixels of the picture (`real`, what is meant
where nothing is said) or shares of it (`norm1`). Knows no file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from engine.contract.sources.ground_truth import GroundTruthError
from engine.contract.stage2 import coords


def is_swift(objects: Any) -> bool:
    """Whether a record's `objects` have this form."""
    return isinstance(objects, Mapping) and "bbox" in objects


def own_objects(
    objects: Mapping[str, Any], size: tuple[int, int], where: str
) -> list[dict[str, Any]]:
    """One `desc` and `bbox_2d` a box, in thousandths of a picture of that size.

    Raises GroundTruthError.

    >>> own_objects({"ref": ["cat"], "bbox": [[0, 24, 64, 48]]}, (64, 48), "")
    [{'desc': 'cat', 'bbox_2d': [0, 500, 999, 999]}]
    """
    boxes, names = objects.get("bbox"), objects.get("ref")
    if not isinstance(boxes, list) or not isinstance(names, list):
        raise GroundTruthError(
            where, "objects", "have no list of names (ref) or boxes (bbox)", "give both"
        )
    if len(names) not in (1, len(boxes)):
        raise GroundTruthError(
            where,
            "objects",
            f"have {len(names)} names (ref) for {len(boxes)} boxes (bbox)",
            "give each box its name, or one name for all",
        )
    if any(objects.get("image_id") or ()):
        raise GroundTruthError(
            where, "objects.image_id", "names a later picture", "keep boxes of the first alone"
        )
    frame = _frame(objects, size, where)
    names = names * len(boxes) if len(names) == 1 else names
    return [
        {"desc": name, "bbox_2d": _thousandths(box, frame, where, f"objects.bbox[{i}]")}
        for i, (name, box) in enumerate(zip(names, boxes, strict=True))
    ]


def _frame(objects: Mapping[str, Any], size: tuple[int, int], where: str) -> tuple[int, int]:
    """What a coordinate at the far sides counts."""
    match objects.get("bbox_type"):
        case None | "real":
            return size
        case "norm1":
            return 1, 1
        case other:
            raise GroundTruthError(
                where, "objects.bbox_type", f"{other!r} is no unit", "write real or norm1"
            )


def _thousandths(box: Any, frame: tuple[int, int], where: str, field: str) -> list[int]:
    if not isinstance(box, Sequence) or isinstance(box, str) or len(box) != 4:
        raise GroundTruthError(
            where, field, f"{box!r} is not a list of 4 coordinates", "give x1, y1, x2, y2"
        )
    found = []
    for place, (value, side) in enumerate(zip(box, (*frame, *frame), strict=True)):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not 0 <= value <= side:
            raise GroundTruthError(
                where,
                f"{field}[{place}]",
                f"{value!r} is outside 0..{side}",
                "give pixels of the picture, or bbox_type norm1 with shares of it",
            )
        found.append(coords.encode(value / side))
    return found
