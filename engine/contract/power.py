"""What a bench can show: the smallest difference that its rows find with 80 % power.

Part of the contract, as the intervals are: a page and a report must mean the same by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

CHANGED = 0.16
"""Share of rows that two checkpoints answer differently, where none was seen yet."""
POWER = 0.8
_STEPS = 40
"""Halvings of a search between 0 and 1."""


def paired_lift(n: float, changed: float = CHANGED, alpha: float = 0.05) -> float | None:
    """The smallest lift that a paired test on n rows finds; None where not even 1 is found.

    `changed`: the share of rows solved by one side alone. n δ = z_α √(n d) + z_β √(n (d − δ²))
    (Connor 1987, Biometrics 43:207) with half a pair more, which the exact test asks for by being
    discrete: its power there is 79 to 82 %, and up to 87 % where fewer than ten rows change.

    >>> round(paired_lift(200), 3)
    0.081
    """
    if n < 1 - math.log2(alpha):  # all rows gained and none lost is no proof yet
        return None
    z_alpha, z_beta = _normal(alpha)

    def found(lift: float) -> bool:
        share = max(changed, lift)
        spread = z_alpha * math.sqrt(n * share) + z_beta * math.sqrt(n * (share - lift * lift))
        return n * lift >= 0.5 + spread

    return _smallest(found, 1.0)


def unpaired_lift(
    n_before: float, n_after: float, before: float = 0.5, alpha: float = 0.05
) -> float | None:
    """The same for two sets of rows that have nothing in common; `before`: the lower of the rates.

    By the test with Yates's correction, for small and one-sided rates deceive the plain one
    (Fleiss, Levin and Paik 2003, Statistical Methods for Rates and Proportions, 4.2).

    >>> round(unpaired_lift(200, 200), 3)
    0.143
    """
    if not n_before or not n_after:
        return None
    z_alpha, z_beta = _normal(alpha)
    yates = (1 / n_before + 1 / n_after) / 2

    def found(lift: float) -> bool:
        after = before + lift
        both = (n_before * before + n_after * after) / (n_before + n_after)
        alike = both * (1 - both) * (1 / n_before + 1 / n_after)
        apart = before * (1 - before) / n_before + after * (1 - after) / n_after
        return lift >= yates + z_alpha * math.sqrt(alike) + z_beta * math.sqrt(apart)

    return _smallest(found, 1.0 - before)


def _normal(alpha: float) -> tuple[float, float]:
    return NormalDist().inv_cdf(1 - alpha / 2), NormalDist().inv_cdf(POWER)


def _smallest(found: Callable[[float], bool], most: float) -> float | None:
    """Where what is found begins, between 0 and `most`."""
    if most <= 0 or not found(most):
        return None
    low, high = 0.0, most
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high
