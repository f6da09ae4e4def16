"""Intervals for success rates and for the difference of two policies, on the same items or not.

Part of the contract: a cockpit that compares two runs must mean by "better" what a run means by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_Z95 = 1.959963984540054


def wilson(successes: int, n: int) -> tuple[float, float]:
    """95 % score interval of a proportion (Wilson 1927). n = 0 gives (0, 1).

    >>> [round(x, 3) for x in wilson(5, 10)]
    [0.237, 0.763]
    """
    if n == 0:
        return 0.0, 1.0
    p, z2 = successes / n, _Z95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # Exact at the ends, where rounding would leave the score outside its own interval.
    low = 0.0 if successes == 0 else centre - half
    return low, 1.0 if successes == n else centre + half


@dataclass(frozen=True)
class PairedComparison:
    """Two policies on the same n items. `gained`: only the second solved it; `lost`: the first."""

    n: int
    before: float
    after: float
    gained: int
    lost: int
    lift: float
    ci95: tuple[float, float]
    p_value: float
    """Exact two-sided McNemar test."""


def compare(before: Sequence[bool | None], after: Sequence[bool | None]) -> PairedComparison:
    """Item i of both is the same question; one that either did not judge (None) is left out of
    both. Raises ValueError when the lengths differ.
    """
    pairs = [pair for pair in zip(before, after, strict=True) if None not in pair]
    n = len(pairs)
    both, gained = pairs.count((True, True)), pairs.count((False, True))
    lost = pairs.count((True, False))
    return PairedComparison(
        n=n,
        before=(both + lost) / n if n else math.nan,
        after=(both + gained) / n if n else math.nan,
        gained=gained,
        lost=lost,
        lift=(gained - lost) / n if n else math.nan,
        ci95=newcombe(both, gained, lost, n),
        p_value=mcnemar(gained, lost),
    )


def newcombe(both: int, gained: int, lost: int, n: int) -> tuple[float, float]:
    """95 % interval of P(after) − P(before) for paired proportions.

    Newcombe 1998 (Stat. Med. 17:2635), method 10: Wilson limits of the margins, squared and
    added with their correlation.
    """
    if n == 0:
        return -1.0, 1.0
    neither = n - both - gained - lost
    after, before = (both + gained) / n, (both + lost) / n
    low_a, high_a = wilson(both + gained, n)
    low_b, high_b = wilson(both + lost, n)
    phi = _correlation(both, gained, lost, neither)
    lift = after - before
    down = _combine(after - low_a, high_b - before, phi)
    up = _combine(high_a - after, before - low_b, phi)
    return max(-1.0, lift - down), min(1.0, lift + up)


def independent(before: int, n_before: int, after: int, n_after: int) -> tuple[float, float]:
    """95 % interval of P(after) − P(before) for successes on different items.

    Newcombe 1998 (Stat. Med. 17:873), method 10; wider than the paired one on the same numbers.
    """
    if not n_before or not n_after:
        return -1.0, 1.0
    low_a, high_a = wilson(after, n_after)
    low_b, high_b = wilson(before, n_before)
    p_after, p_before = after / n_after, before / n_before
    lift = p_after - p_before
    down = _combine(p_after - low_a, high_b - p_before, 0.0)
    up = _combine(high_a - p_after, p_before - low_b, 0.0)
    return max(-1.0, lift - down), min(1.0, lift + up)


def mcnemar(gained: int, lost: int) -> float:
    """Two-sided exact p-value: could a fair coin part the pairs that differ so unevenly?

    >>> mcnemar(6, 0)
    0.03125
    """
    n = gained + lost
    ways = tail = 1  # n choose k, and the sum of them so far
    for k in range(min(gained, lost)):
        ways = ways * (n - k) // (k + 1)
        tail += ways
    return min(1.0, 2 * tail / (1 << n))


def _combine(a: float, b: float, phi: float) -> float:
    return math.sqrt(max(0.0, a * a - 2 * phi * a * b + b * b))


def _correlation(both: int, gained: int, lost: int, neither: int) -> float:
    """Phi of the 2 × 2 table, 0 where a margin is empty, continuity-corrected where positive."""
    margins = (both + gained) * (lost + neither) * (both + lost) * (gained + neither)
    if margins == 0:
        return 0.0
    n = both + gained + lost + neither
    excess: float = both * neither - gained * lost
    if excess > 0:
        excess = max(excess - n / 2, 0)
    return excess / math.sqrt(margins)
