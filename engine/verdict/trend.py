"""How the pool moved: the mean of some steps' scores against that of others. Knows no loop."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_Z = 3.0
"""Steps of a run are alike and few: three standard errors instead of two."""
_MEDIAN_OF_SQUARE = 0.4549
"""Of a standard normal number."""
_LONGEST = 20
"""Steps in a window."""


@dataclass(frozen=True)
class Rise:
    """`by` is the difference of two means, `low` the least it is likely to be."""

    by: float
    low: float


NO_RISE = Rise(0.0, 0.0)


def unevenness(scores: Sequence[float]) -> float:
    """Variance of one step's score around whatever it follows; infinite for fewer than four.

    From the differences of neighbours (von Neumann 1941), by their median: neither a trend nor a
    few leaps count as noise.
    """
    squares = [(b - a) ** 2 for a, b in itertools.pairwise(scores)]
    return statistics.median(squares) / 2 / _MEDIAN_OF_SQUARE if len(squares) >= 3 else math.inf


def rise(before: Sequence[float], after: Sequence[float], variance: float) -> Rise:
    """Mean of `after` minus mean of `before`, with a bound three standard errors below.

    `variance` is that of one step.
    """
    if not before or not after or math.isinf(variance):
        return NO_RISE
    by = statistics.fmean(after) - statistics.fmean(before)
    error = math.sqrt(variance * (1 / len(before) + 1 / len(after)))
    return Rise(by, by - _Z * error)


def over_run(scores: Mapping[int, float]) -> Rise:
    """From the first eighth of the steps to the last, 1 to 20 steps each."""
    ordered = [scores[step] for step in sorted(scores)]
    size = min(_LONGEST, max(1, len(ordered) // 8))
    return rise(ordered[:size], ordered[-size:], unevenness(ordered))
