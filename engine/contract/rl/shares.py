"""How many rows a corpus gives to training, to the gates and to the report: the arithmetic of the
split, forwards and backwards.

Knows no row: rows of one prompt stay together, so a real split may have a few more or fewer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

MOST_HELD_BACK = 0.5
"""The largest `heldout_frac` that is ever proposed: beyond it little is left to learn from."""


class Sizes(NamedTuple):
    """Rows of each part."""

    train: int
    select: int
    report: int


def sizes(rows: int, heldout_frac: float, select_frac: float) -> Sizes:
    """Held-out = max(1, round(rows · frac)), parted into select, at least one row, and report.

    >>> sizes(150, 0.2, 0.5)
    Sizes(train=120, select=15, report=15)
    """
    heldout = max(1, round(rows * heldout_frac))
    select = max(1, round(heldout * select_frac))
    return Sizes(rows - heldout, select, heldout - select)


def rows_for(report: int, heldout_frac: float, select_frac: float) -> int:
    """The smallest corpus whose split has so many `report` rows.

    >>> rows_for(30, 0.2, 0.5)
    298
    """
    rows = max(1, math.floor((_heldout_for(report, select_frac) - 0.5) / heldout_frac) - 1)
    while sizes(rows, heldout_frac, select_frac).report < report:
        rows += 1
    return rows


def heldout_frac_for(report: int, rows: int, select_frac: float) -> float | None:
    """The smallest share, in hundredths, that gives so many `report` rows; None when that is more
    than `MOST_HELD_BACK`.

    >>> heldout_frac_for(30, 150, 0.5), heldout_frac_for(30, 100, 0.5)
    (0.4, None)
    """
    least = math.floor(100 * (_heldout_for(report, select_frac) - 1) / rows)
    for hundredths in range(max(1, least), round(100 * MOST_HELD_BACK) + 1):
        if sizes(rows, hundredths / 100, select_frac).report >= report:
            return hundredths / 100
    return None


def _heldout_for(report: int, select_frac: float) -> int:
    """The fewest held-out rows of which so many are left for the report."""
    heldout = max(report + 1, math.floor((report - 1) / (1 - select_frac)))
    while heldout - max(1, round(heldout * select_frac)) < report:
        heldout += 1
    return heldout
