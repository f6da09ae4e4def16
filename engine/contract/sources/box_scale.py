"""Box scale: do the boxes of a file look like thousandths of their pictures, or like pixels or
hundredths?

0 to 999 are both a pixel and a thousandth, so no single box can tell. A whole file can: boxes in
another scale never leave its frame and fill it, and read as thousandths of a small picture they
are a pixel or two wide. Knows no value that is no box; `ground_truth` refuses those by line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.contract.sources.ground_truth import Box
from engine.contract.sources.records import Record
from engine.contract.stage2 import coords

PIXEL_BOXES = "PIXEL_BOXES"
BOXES_OFF_SCALE = "BOXES_OFF_SCALE"

_OUTSIDE = 0.01
"""Share of boxes that may leave a frame all the same: labels are sloppy."""
_FILLS = 0.9
"""How far into a frame its boxes reach, of its side."""
_CHANCE = math.log(1e-5)
"""Thousandths are taken for another scale when they fit its frame by such a chance."""
_MOST_SAID = math.log(1 / 4)
"""However small its frame, one box says no more: objects do lie in one corner."""
_KEPT = 1000
"""Different boxes that are told apart."""
_SPECK = 3.0
"""Pixels: the longer side of what can hardly be seen."""
_FEW = 5
"""Boxes of which fewer may be specks by intention."""
_LARGE = 0.4
"""Share of its frame's side from which a box is large."""


class FileCaution(NamedTuple):
    """What a person should know of a file that can be trained on all the same."""

    code: str
    problem: str
    remedy: str


@dataclass
class _Frame:
    """One other scale: how many boxes stay inside its frame, and how well they fill it."""

    inside: int = 0
    outside: int = 0
    large: int = 0
    fills_x: float = 0.0
    fills_y: float = 0.0
    chance: float = 0.0
    """Logarithm of the chance that thousandths anywhere in their pictures stay inside."""
    chance_of_all: float = 0.0
    """The same, a box counted as often as it stands there."""
    chance_at_most: float = 0.0
    """The same of different boxes, whatever a single one says."""
    known: set[tuple[Box, int, int]] = field(default_factory=set)

    def add(self, box: Box, width: int, height: int) -> bool:
        """Whether the box lies inside a frame of that size."""
        x1, y1, x2, y2 = box
        if x2 > width or y2 > height:
            self.outside += 1
            return False
        self.inside += 1
        self.large += max((x2 - x1) / width, (y2 - y1) / height) >= _LARGE
        self.fills_x = max(self.fills_x, x2 / min(width, coords.LAST_BIN))
        self.fills_y = max(self.fills_y, y2 / min(height, coords.LAST_BIN))
        chance = sum(2 * math.log(min(1.0, side / coords.LAST_BIN)) for side in (width, height))
        self.chance_of_all += max(_MOST_SAID, chance)
        one = (box, width, height)
        if len(self.known) < _KEPT and one not in self.known:
            self.known.add(one)
            self.chance += max(_MOST_SAID, chance)
            self.chance_at_most += chance
        return True

    @property
    def holds(self) -> bool:
        """Whether next to no box leaves it."""
        return self.inside > 0 and self.outside <= _OUTSIDE * (self.inside + self.outside)

    def is_filled(self, reached: float) -> bool:
        """Whether it is no chance that the boxes stay inside, `reached` of its sides.

        The same box again says something only where it is a large one.
        """
        mostly_large = 2 * self.large > self.inside
        chance = self.chance_of_all if mostly_large else self.chance
        return self.holds and reached >= _FILLS and chance <= _CHANCE


class BoxScale:
    """Sees each record once and keeps none of them."""

    def __init__(self) -> None:
        self._pixels, self._hundredths, self._units = _Frame(), _Frame(), _Frame()
        self._sized = self._specks = 0

    def passing(self, records: Iterable[Record]) -> Iterator[Record]:
        """The same records, each seen on its way."""
        for record in records:
            self._see(record)
            yield record

    def _see(self, record: Record) -> None:
        width, height = record.size
        for one in record.objects:
            x1, y1, x2, y2 = one.box
            self._units.add(one.box, 1, 1)
            self._hundredths.add(one.box, 100, 100)
            inside = self._pixels.add(one.box, width, height)
            side = max((x2 - x1) * width, (y2 - y1) * height) / coords.LAST_BIN
            if side > 0:
                self._sized += 1
                self._specks += inside and side < _SPECK

    def finding(self) -> FileCaution | None:
        """None for boxes that may well be thousandths."""
        pixels, boxes = self._pixels, self._pixels.inside + self._pixels.outside
        units, hundredths = self._units, self._hundredths
        if units.outside == 0 and max(units.fills_x, units.fills_y) > 0:
            found = f"holds {boxes} boxes of 0 and 1 alone: they look like shares of the picture"
            return FileCaution(BOXES_OFF_SCALE, found, f"{_REMEDY}, of a share round(999 * x)")
        if hundredths.is_filled(max(hundredths.fills_x, hundredths.fills_y)):
            found = f"holds {boxes} boxes within 0 to 100: they look like hundredths of the picture"
            return FileCaution(BOXES_OFF_SCALE, found, f"{_REMEDY}, of those round(9.99 * x)")
        mostly_specks = self._sized >= _FEW and 2 * self._specks > self._sized
        filled = pixels.is_filled(min(pixels.fills_x, pixels.fills_y))
        if filled or (pixels.holds and mostly_specks and pixels.chance_at_most <= _CHANCE):
            found = (
                f"holds {boxes} boxes within the pixels of their pictures, as wide and high as the "
                "records say: they look like pixels"
            )
            return FileCaution(PIXEL_BOXES, found, f"{_REMEDY}, of pixels {_OF_PIXELS}")
        return None


_REMEDY = "boxes are thousandths of the picture here, 0 to 999: scale them"
_OF_PIXELS = "round(999 * x / width) and round(999 * y / height)"
