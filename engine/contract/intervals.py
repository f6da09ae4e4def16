"""Intervals for success rates and for the difference of two policies, on the same items or not.

Part of the contract: a cockpit that compares two runs must mean by "better" what a run means by it.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

_Z95 = 1.959963984540054
_Z80 = 1.2815515655446004
"""Of a two-sided interval at 80 %: each of its ends holds at 90 %."""


def evidence(questions: Sequence[Hashable]) -> float:
    """How many rows with questions of their own say as much as these (Kish 1965).

    Copies of a question are solved together or not at all, as far as anybody knows beforehand.

    >>> evidence("abc"), evidence("aab")
    (3.0, 1.8)
    """
    sizes = Counter(questions).values()
    return sum(sizes) ** 2 / sum(size * size for size in sizes) if sizes else 0.0


def wilson(successes: float, n: float, z: float = _Z95) -> tuple[float, float]:
    """95 % score interval of a proportion (Wilson 1927). n = 0 gives (0, 1).

    >>> [round(x, 3) for x in wilson(5, 10)]
    [0.237, 0.763]
    """
    if n == 0:
        return 0.0, 1.0
    p, z2 = successes / n, z**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
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
    """Exact two-sided McNemar test; where items ask the same, whole questions change their sign."""
    different: int
    """Questions among the items: fewer than n where some were asked more than once."""
    most: float
    """The largest lift that the items leave likely: its upper bound at 90 %."""


def compare(
    before: Sequence[bool | None],
    after: Sequence[bool | None],
    questions: Sequence[Hashable] | None = None,
) -> PairedComparison:
    """Item i of both is the same question; one that either did not judge (None) is left out of
    both. Raises ValueError when the lengths differ.

    `questions`: what each item asks; items that ask the same count as one observation. Without it
    every item is a question of its own.
    """
    every = range(len(before)) if questions is None else questions
    judged = [
        (first, second, question)
        for first, second, question in zip(before, after, every, strict=True)
        if first is not None and second is not None
    ]
    pairs = [(first, second) for first, second, _ in judged]
    asked = [question for _, _, question in judged]
    n = len(pairs)
    both, gained = pairs.count((True, True)), pairs.count((False, True))
    lost = pairs.count((True, False))
    share = evidence(asked) / n if n else 1.0
    counts = (both * share, gained * share, lost * share, n * share)
    return PairedComparison(
        n=n,
        before=(both + lost) / n if n else math.nan,
        after=(both + gained) / n if n else math.nan,
        gained=gained,
        lost=lost,
        lift=(gained - lost) / n if n else math.nan,
        ci95=newcombe(*counts),
        p_value=_sign_flips(pairs, asked),
        different=len(set(asked)),
        most=newcombe(*counts, _Z80)[1],
    )


class PairedAt(NamedTuple):
    """A part of a mixture."""

    weight: float
    found: PairedComparison


def weighted(whole: PairedComparison, parts: Sequence[PairedAt]) -> PairedComparison:
    """The whole with the mean over its parts by weight as its rates: a mixture's score, in which
    a source does not count for more because it has more rows.

    The interval joins those of the parts (MOVER: Zou and Donner 2008, Stat. Med. 27:1693). Counts
    and test stay those of all rows.
    """
    known = [(part.weight, part.found) for part in parts if part.found.n]
    total = math.fsum(weight for weight, _ in known)
    if not total:
        return whole
    shares = [(weight / total, found) for weight, found in known]
    lift = math.fsum(share * found.lift for share, found in shares)
    down, up = (
        math.sqrt(math.fsum((share * (f.ci95[side] - f.lift)) ** 2 for share, f in shares))
        for side in (0, 1)
    )
    return replace(
        whole,
        before=math.fsum(share * found.before for share, found in shares),
        after=math.fsum(share * found.after for share, found in shares),
        lift=lift,
        ci95=(lift - down, lift + up),
    )


def newcombe(
    both: float, gained: float, lost: float, n: float, z: float = _Z95
) -> tuple[float, float]:
    """95 % interval of P(after) − P(before) for paired proportions.

    Newcombe 1998 (Stat. Med. 17:2635), method 10: Wilson limits of the margins, squared and
    added with their correlation.
    """
    if n == 0:
        return -1.0, 1.0
    neither = n - both - gained - lost
    after, before = (both + gained) / n, (both + lost) / n
    low_a, high_a = wilson(both + gained, n, z)
    low_b, high_b = wilson(both + lost, n, z)
    phi = _correlation(both, gained, lost, neither)
    lift = after - before
    down = _combine(after - low_a, high_b - before, phi)
    up = _combine(high_a - after, before - low_b, phi)
    return max(-1.0, lift - down), min(1.0, lift + up)


def independent(
    before: float, n_before: float, after: float, n_after: float
) -> tuple[float, float]:
    """95 % interval of P(after) − P(before) for successes on different items.

    Newcombe 1998 (Stat. Med. 17:873), method 10; wider than the paired one on the same numbers.
    """
    if not n_before or not n_after:
        return -1.0, 1.0
    return apart(
        before / n_before, wilson(before, n_before), after / n_after, wilson(after, n_after)
    )


def apart(
    before: float, before_95: tuple[float, float], after: float, after_95: tuple[float, float]
) -> tuple[float, float]:
    """95 % interval of after − before from the interval of each, by themselves (MOVER: Zou and
    Donner 2008). Shares of one.

    >>> [round(x, 3) for x in apart(0.5, (0.4, 0.6), 0.6, (0.5, 0.7))]
    [-0.041, 0.241]
    """
    lift = after - before
    down = _combine(after - after_95[0], before_95[1] - before, 0.0)
    up = _combine(after_95[1] - after, before - before_95[0], 0.0)
    return max(-1.0, lift - down), min(1.0, lift + up)


def bootstrap(
    values: Sequence[float], questions: Sequence[Hashable] | None = None
) -> tuple[float, float]:
    """95 % interval of a mean that is no share, as that of rewards: percentiles of the means of
    resampled questions (Efron 1979), with the same draws at each call. No values give (nan, nan).

    >>> bootstrap([0.25, 0.25, 0.25])
    (0.25, 0.25)
    """
    if not values:
        return math.nan, math.nan
    every = range(len(values)) if questions is None else questions
    of: dict[Hashable, list[float]] = {}
    for value, question in zip(values, every, strict=True):
        of.setdefault(question, []).append(value)
    sums = [(math.fsum(rows), len(rows)) for rows in of.values()]
    draw = random.Random(0)
    times = max(_LEAST_RESAMPLES, min(_RESAMPLES, _MOST_DRAWN // len(sums)))
    means = []
    for _ in range(times):
        drawn = draw.choices(sums, k=len(sums))
        means.append(math.fsum(s for s, _ in drawn) / sum(n for _, n in drawn))
    means.sort()
    return means[round(0.025 * (times - 1))], means[round(0.975 * (times - 1))]


_LEAST_RESAMPLES, _RESAMPLES, _MOST_DRAWN = 400, 2000, 4_000_000
"""Of questions that are drawn together: a large bench needs fewer."""


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


def _sign_flips(pairs: Sequence[tuple[bool, bool]], asked: Sequence[Hashable]) -> float:
    """McNemar's test with questions for items: could fair coins give the differences of whole
    questions their signs?
    """
    sums: Counter[Hashable] = Counter()
    for question, (first, second) in zip(asked, pairs, strict=True):
        sums[question] += second - first
    sizes = [abs(one) for one in sums.values() if one]
    if max(sizes, default=1) == 1:
        by_sign = Counter(sums.values())
        return mcnemar(by_sign[1], by_sign[-1])
    return _two_sided(sizes, abs(sum(sums.values())))


def _two_sided(sizes: Sequence[int], seen: int) -> float:
    """Share of all ways to give `sizes` signs whose sum is as far from 0 as `seen`.

    Ways are counted by the sum of the sizes that are positive: the coefficients of the product of
    (1 + x^size), which stand side by side in one whole number.
    """
    width = len(sizes) + 1
    ways = 1
    for size in sizes:
        ways += ways << size * width
    least = -(-(sum(sizes) + seen) // 2)
    # Modulo 2^width − 1 the digits add up; their sum is at most 2^(width − 1).
    tail = (ways >> least * width) % ((1 << width) - 1)
    return min(1.0, 2 * tail / (1 << len(sizes)))


def _combine(a: float, b: float, phi: float) -> float:
    return math.sqrt(max(0.0, a * a - 2 * phi * a * b + b * b))


def _correlation(both: float, gained: float, lost: float, neither: float) -> float:
    """Phi of the 2 × 2 table, 0 where a margin is empty, continuity-corrected where positive."""
    margins = (both + gained) * (lost + neither) * (both + lost) * (gained + neither)
    if margins == 0:
        return 0.0
    n = both + gained + lost + neither
    excess: float = both * neither - gained * lost
    if excess > 0:
        excess = max(excess - n / 2, 0)
    return excess / math.sqrt(margins)
