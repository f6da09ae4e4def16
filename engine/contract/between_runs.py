"""Scores of repeated runs: one value a run, an interval of their mean, a test of two means.

Runs that differ in their seed alone end at different scores, often further apart than a gain is
large. What they have in common is therefore tested between runs: n is the number of runs, however
many rows each of them answered. Rows of one run share its weights, so a test over the rows of all
runs together would take one run's luck for evidence (Colas et al. 2019, arXiv:1904.06979; Agarwal
et al. 2021, arXiv:2108.13264).

Part of the contract, without SciPy: app and worker reckon with it too. Knows no job.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

FEWEST_RUNS = 2
"""One run has no spread."""
_ALPHA = 0.05
_POWER = 0.8
_SMALL = 1e-12
"""Of scores, which are shares of one: a spread below it is rounding."""


@dataclass(frozen=True)
class Spread:
    """The values of some runs, one a run."""

    n: int
    mean: float
    lowest: float
    highest: float
    sd: float | None
    """Standard deviation between runs (n − 1); None of fewer than two."""
    ci95: tuple[float, float] | None
    """Student's interval of the mean; None without spread between at least two runs."""

    @property
    def varies(self) -> bool:
        """Whether there is a spread to test against."""
        return self.ci95 is not None


def spread(values: Sequence[float], bounds: tuple[float, float] = (0.0, 1.0)) -> Spread:
    """Of at least one value, each within `bounds`; the interval ends there too.

    Raises ValueError without a value.

    >>> found = spread([0.60, 0.64, 0.68])
    >>> round(found.mean, 2), [round(end, 3) for end in found.ci95]
    (0.64, [0.541, 0.739])
    """
    if not values:
        raise ValueError("no run has a value; give at least one")
    n = len(values)
    mean = math.fsum(values) / n
    sd = None
    ci95 = None
    if n >= FEWEST_RUNS:
        sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
        if sd > _SMALL:
            half = t_quantile(1 - _ALPHA / 2, n - 1) * sd / math.sqrt(n)
            ci95 = (max(bounds[0], mean - half), min(bounds[1], mean + half))
    return Spread(n, mean, min(values), max(values), sd, ci95)


@dataclass(frozen=True)
class Welch:
    """The difference of two means of runs."""

    difference: float
    """Of the second from the first."""
    ci95: tuple[float, float]
    p_value: float
    """Two-sided."""
    df: float
    shows: float
    """The smallest difference that so many runs with so much spread find with 80 % power."""


def welch(first: Spread, second: Spread) -> Welch | None:
    """Welch's t-test (1947, Biometrika 34:28) with the degrees of freedom of Satterthwaite.

    None where either is one run or has no spread: there is nothing to hold the difference against.
    """
    if not (first.varies and second.varies):
        return None
    parts = [(one.sd or 0.0) ** 2 / one.n for one in (first, second)]
    error = math.sqrt(sum(parts))
    df = sum(parts) ** 2 / (parts[0] ** 2 / (first.n - 1) + parts[1] ** 2 / (second.n - 1))
    difference = second.mean - first.mean
    half = t_quantile(1 - _ALPHA / 2, df)
    return Welch(
        difference=difference,
        ci95=(difference - half * error, difference + half * error),
        p_value=2 * t_tail(abs(difference) / error, df),
        df=df,
        shows=(half + t_quantile(_POWER, df)) * error,
    )


def t_tail(t: float, df: float) -> float:
    """P(T > t) of Student's t for t ≥ 0; `df` at least 1, a fraction too.

    >>> round(t_tail(2.0, 10), 4)
    0.0367
    """
    return 0.5 * _incomplete_beta(df / 2, 0.5, df / (df + t * t))


@lru_cache(maxsize=256)
def t_quantile(share: float, df: float) -> float:
    """The t below which this share of Student's distribution lies; `share` from 0.5 to below 1.

    >>> round(t_quantile(0.975, 2), 3), round(t_quantile(0.975, 30), 3)
    (4.303, 2.042)
    """
    low, high = 0.0, 1.0
    while t_tail(high, df) > 1 - share:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        if t_tail(middle, df) > 1 - share:
            low = middle
        else:
            high = middle
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised, I_x(a, b): the continued fraction of DLMF 8.17.22 where it converges fast."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(b, a, 1 - x)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log1p(-x)) / a
    return front * _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """1 / (1 + d₁ / (1 + d₂ / …)), by Lentz's method (Thompson and Barnett 1986)."""
    value, c, d = 1.0, 1.0, 0.0
    for k in range(1, 500):
        m = k // 2
        term = -(a + m) * (a + b + m) / (a + 2 * m + 1) if k % 2 else m * (b - m) / (a + 2 * m - 1)
        term *= x / (a + 2 * m)
        d = 1 / (1 + term * d)
        c = 1 + term / c
        value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return 1 / value
