"""Boxes over a picture, as a page draws them: where each line and label stands. Knows no page.

Ground truth and prediction, hit and miss are told by line style and label, never by colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worker.read.samples.rows import Box, Detection

WIDTH = 1000
TALLEST = 2000
"""Units of the longer side of an upright picture: a taller one is drawn narrower."""


@dataclass(frozen=True)
class DrawnBox:
    """One rectangle in a drawing."""

    kind: str
    """truth, missed, matched or false: the line's style."""
    label: str
    x: float
    y: float
    width: float
    height: float
    top: bool
    """Whether the label hangs from the upper edge; else it stands on the lower one."""

    @property
    def label_y(self) -> float:
        """The edge that it hangs from or stands on."""
        return self.y if self.top else self.y + self.height


@dataclass(frozen=True)
class Drawing:
    """Boxes over one picture, `WIDTH` wide unless that made it taller than `TALLEST`."""

    width: float
    height: float
    boxes: Sequence[DrawnBox]
    title: str


def drawing(found: Detection) -> Drawing:
    """Objects first, so that predictions lie on top."""
    picture = found.picture
    upright = picture.height / picture.width if picture else 1.0
    width = min(WIDTH, TALLEST / upright)
    size = (width, width * upright)
    boxes = [
        _drawn(one, "truth" if one.fate == "found" else "missed", f"{one.number}", size, top=True)
        for one in found.objects
        if one.bounds
    ]
    boxes += [
        _drawn(
            one,
            "matched" if one.fate == "matched" else "false",
            f"= {one.partner}" if one.fate == "matched" else "FP",
            size,
            top=False,
        )
        for one in found.entries
        if one.bounds
    ]
    return Drawing(*size, boxes, _title(found))


def _drawn(one: Box, kind: str, label: str, size: tuple[float, float], *, top: bool) -> DrawnBox:
    assert one.bounds is not None
    across, down = (side / 1000 for side in size)
    x1, y1, x2, y2 = one.bounds
    word = "missed " if kind == "missed" else ""
    return DrawnBox(
        kind, f"{word}{label}", x1 * across, y1 * down, (x2 - x1) * across, (y2 - y1) * down, top
    )


def _title(found: Detection) -> str:
    hits = sum(one.fate == "found" for one in found.objects)
    false = sum(one.fate == "false positive" for one in found.entries)
    dropped = sum(one.bounds is None for one in found.entries)
    said = f"{hits} of {len(found.objects)} objects found, {false} false positives"
    return f"{said}, {dropped} entries dropped" if dropped else said
