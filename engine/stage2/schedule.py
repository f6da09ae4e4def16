"""Which optimizer step runs which channel. Knows no trainer."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

Channel = Literal["a", "b"]


def channel_of(step: int, b_ratio: float) -> Channel:
    """Channel-B at optimizer step s (from 0) iff floor((s + 1) b) > floor(s b).

    `b_ratio` counts as the decimal that was written: 0.29 is 29/100, not the double below it,
    whose products would shift a step.

    >>> [channel_of(s, 0.5) for s in range(4)]
    ['a', 'b', 'a', 'b']
    """
    b = Fraction(repr(b_ratio))
    return "b" if math.floor((step + 1) * b) > math.floor(step * b) else "a"
