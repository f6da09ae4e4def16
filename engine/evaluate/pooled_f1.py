"""F1 over pictures: counts pooled, its interval by pictures drawn again.

A picture counts as (hits, predictions, objects). The objects of one picture are not independent,
so whole pictures are drawn (percentile bootstrap, Efron 1979).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Counts = tuple[int, int, int]
_RESAMPLES = 1000
_SEED = 0
"""Greedy answers are the same each time, and so is the interval."""


def f1(hits: int, said: int, there: int) -> float:
    """Of sums over pictures; 0 where there is nothing.

    >>> f1(1, 2, 2), f1(0, 0, 0)
    (0.5, 0.0)
    """
    return 2 * hits / max(said + there, 1)


def by_picture(counts: Sequence[Counts], pictures: Sequence[str] | None) -> list[Counts]:
    """Sums of the records that show the same picture, for they are drawn together.

    >>> by_picture([(1, 1, 2), (0, 1, 0), (1, 1, 1)], ["a", "b", "a"])
    [(2, 2, 3), (0, 1, 0)]
    """
    if not pictures:
        return list(counts)
    sums: dict[str, Counts] = {}
    for picture, (hits, said, there) in zip(pictures, counts, strict=True):
        a, b, c = sums.get(picture, (0, 0, 0))
        sums[picture] = (a + hits, b + said, c + there)
    return list(sums.values())


def f1_interval(counts: Sequence[Counts]) -> tuple[float, float]:
    """95 % interval of the pooled F1. Without a picture nothing is known: (0, 1)."""
    if not counts:
        return 0.0, 1.0
    return percentiles([_pooled(counts, draw) for draw in draws(len(counts), _RESAMPLES)])


def lift_interval(before: Sequence[Counts], after: Sequence[Counts]) -> tuple[float, float]:
    """95 % interval of F1(after) - F1(before), both on the same resampled pictures."""
    if not before:
        return -1.0, 1.0
    drawn = draws(len(before), _RESAMPLES)
    return percentiles([_pooled(after, draw) - _pooled(before, draw) for draw in drawn])


def draws(n: int, times: int) -> list[NDArray[np.int64]]:
    """Places of pictures drawn with replacement, the same each time."""
    rng = np.random.default_rng(_SEED)
    return [rng.integers(0, n, n) for _ in range(times)]


def percentiles(scores: Sequence[float]) -> tuple[float, float]:
    """The middle 95 %."""
    low, high = np.percentile(scores, [2.5, 97.5])
    return float(low), float(high)


def _pooled(counts: Sequence[Counts], draw: NDArray[np.int64]) -> float:
    hits, said, there = np.asarray(counts)[draw].sum(axis=0).tolist()
    return f1(hits, said, there)
