"""How rows are parted: by the band of the baseline's pass rate, and in which order parts are told.

Torch-free; knows no file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

BAND = "band"
"""`by` of parts by the baseline's pass rate."""
BANDS = (0.0, 0.1, 0.5, 0.9, 1.0)
"""Edges of the bands of pass rates, unless a config says others."""


def band_of(rate: float, edges: Sequence[float] = BANDS) -> str:
    """A band has its lower end, the last one both.

    >>> band_of(0.1), band_of(1.0)
    ('0.1 to 0.5', '0.9 to 1')
    """
    bands = [*pairwise(edges)]
    low, high = next((one for one in bands if rate < one[1]), bands[-1])
    return f"{low:g} to {high:g}"


def natural(name: str) -> tuple[float, str]:
    """A key that sorts `Level 2` before `Level 10`, `0.1 to 0.5` before `0.5 to 0.9`."""
    digits = "".join(char if char.isdigit() or char == "." else " " for char in name).split()
    try:
        return (float(digits[0]) if digits else math.inf), name
    except ValueError:
        return math.inf, name
