"""Boxes over a picture, as a page draws them: where each line and label stands. Knows no page.

Ground truth and prediction, hit and miss are told by line style and label, never by colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worker.samples.rows import Box, Detection

WIDTH = 1000
_LABEL = 44
"""Height of a line of label."""


@dataclass(frozen=True)
class DrawnBox:
    """One rectangle in a drawing that is `WIDTH` wide."""

    kind: str
    """truth, missed, matched or false: the line's style."""
    label: str
    x: float
    y: float
    width: float
    height: float
    label_y: float


@dataclass(frozen=True)
class Drawing:
    """Boxes over one picture."""

    height: float
    boxes: Sequence[DrawnBox]
    title: str


def drawing(found: Detection) -> Drawing:
    """Objects first, so that predictions lie on top."""
    picture = found.picture
    height = WIDTH * picture.height / picture.width if picture else WIDTH
    boxes = [
        _drawn(one, "truth" if one.fate == "found" else "missed", f"{one.number}", height, top=True)
        for one in found.objects
        if one.bounds
    ]
    boxes += [
        _drawn(
            one,
            "matched" if one.fate == "matched" else "false",
            f"= {one.partner}" if one.fate == "matched" else "FP",
            height,
            top=False,
        )
        for one in found.entries
        if one.bounds
    ]
    return Drawing(height, boxes, _title(found))


def _drawn(one: Box, kind: str, label: str, height: float, *, top: bool) -> DrawnBox:
    assert one.bounds is not None
    scale = height / WIDTH
    x1, y1, x2, y2 = one.bounds
    y, bottom = y1 * scale, y2 * scale
    place = y + _LABEL if top else bottom - _LABEL / 4
    word = "missed " if kind == "missed" else ""
    return DrawnBox(kind, f"{word}{label}", x1, y, x2 - x1, bottom - y, place)


def _title(found: Detection) -> str:
    hits = sum(one.fate == "found" for one in found.objects)
    false = sum(one.fate == "false positive" for one in found.entries)
    dropped = sum(one.bounds is None for one in found.entries)
    said = f"{hits} of {len(found.objects)} objects found, {false} false positives"
    return f"{said}, {dropped} entries dropped" if dropped else said
