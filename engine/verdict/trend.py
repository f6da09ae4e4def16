"""How the pool moved: the success of some steps' rollouts against that of others. Knows no loop.

Rollouts of one prompt succeed and fail together, and a prompt comes back every epoch; so what is
counted are rollouts, and what is independent are prompts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

LEVEL = 0.04
"""One-sided, of a rise over a run: the same as of a gain, for the same reason."""


class Tally(NamedTuple):
    """Rollouts of one prompt in one step."""

    prompt: int
    solved: float
    judged: int


Pool = Mapping[int, Sequence[Tally]]
"""By step; steps that sampled nothing have none."""


@dataclass(frozen=True)
class Rise:
    """`by` is the difference of two success rates, `low` the least it is likely to be."""

    by: float
    low: float


NO_RISE = Rise(0.0, 0.0)


def pool_of(scores: Mapping[int, float], groups: Mapping[int, str]) -> Pool:
    """What a loop remembers. A run of before has scores alone: there a step is one observation.

    >>> pool_of({1: 0.75}, {1: "8:3/4 2:3/4"})
    {1: [Tally(prompt=8, solved=3.0, judged=4), Tally(prompt=2, solved=3.0, judged=4)]}
    >>> pool_of({1: 0.75}, {})
    {1: [Tally(prompt=1, solved=0.75, judged=1)]}
    """
    if all(step in groups for step in scores):
        return {step: _read(groups[step]) for step in sorted(scores)}
    return {step: [Tally(step, scores[step], 1)] for step in sorted(scores)}


def written(tallies: Sequence[Tally]) -> str:
    """A step's tallies in few characters; `pool_of` reads them."""
    return " ".join(f"{one.prompt}:{one.solved:g}/{one.judged}" for one in tallies)


def _read(text: str) -> list[Tally]:
    found = []
    for group in text.split():
        prompt, _, counts = group.partition(":")
        solved, _, judged = counts.partition("/")
        found.append(Tally(int(prompt), float(solved), int(judged)))
    return found


def over_run(
    scores: Mapping[int, float], groups: Mapping[int, str] | None = None, level: float = LEVEL
) -> Rise:
    """By the last third of the steps against the first; `groups` as `written` by step.

    The thirds lie two thirds of a run apart: what lies between them, at that pace over the whole
    run, is comparable to what held-out rose from step 0 to the end.
    """
    pool = pool_of(scores, groups or {})
    steps = sorted(pool)
    size = max(1, len(steps) // 3)
    first, last = ([one for s in part for one in pool[s]] for part in (steps[:size], steps[-size:]))
    found = rise(first, last, level=level)
    pace = len(steps) / max(1, len(steps) - size)
    return Rise(found.by * pace, found.low * pace)


def rise(before: Sequence[Tally], after: Sequence[Tally], level: float) -> Rise:
    """Success rate of `after` minus that of `before`, with its lower bound at a one-sided level.

    The variance is clustered by prompt (Liang and Zeger 1986): all that one prompt adds to the
    difference, early and late, is one observation. Student's reference with two degrees of freedom
    less than prompts, for two rates were estimated from them; nothing is said of two prompts or
    fewer.
    """
    adds: dict[int, float] = {}
    rates = []
    for side, tallies in ((-1, before), (1, after)):
        judged = sum(one.judged for one in tallies)
        if not judged:
            return NO_RISE
        rate = sum(one.solved for one in tallies) / judged
        rates.append(rate)
        for one in tallies:
            share = side * (one.solved - rate * one.judged) / judged
            adds[one.prompt] = adds.get(one.prompt, 0.0) + share
    free = len(adds) - 2
    if free < 1:
        return NO_RISE
    by = rates[1] - rates[0]
    error = math.sqrt(math.fsum(add * add for add in adds.values()) * len(adds) / free)
    return Rise(by, by - student(1 - level, free) * error)


def student(share: float, free: int) -> float:
    """Quantile of Student's t, within 1 %: by Cornish and Fisher's expansion (Abramowitz and
    Stegun 26.7.5), and in closed form where that is too coarse. The loop runs without scipy.

    >>> round(student(0.975, 10), 3)
    2.228
    """
    if free == 1:
        return math.tan(math.pi * (share - 0.5))
    if free == 2:
        return (2 * share - 1) * math.sqrt(2 / (4 * share * (1 - share)))
    z = NormalDist().inv_cdf(share)
    return (
        z
        + (z**3 + z) / (4 * free)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * free**4)
    )
