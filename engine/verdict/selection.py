"""Is the checkpoint that was picked as the best of n really better than step 0?

A sign-flip permutation test that repeats the picking: on the `select` rows the statistic is the
best of all gates, under the null too, so having looked at n gates costs what it should; on the
`report` rows, which picked nothing, it is the picked checkpoint alone. Both halves are added up,
so that no row's evidence is lost. Knows no model and no file.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.verdict.verdicts import ALPHA

Outcomes = Sequence[bool | None]
"""Success of each row, in one fixed order; None where it was not judged."""

Questions = Sequence[Hashable]

Ints = npt.NDArray[np.int64]

FLIPS = 10_000
_CHUNK = 1_000
"""Sign vectors drawn at once; bounds the memory at large n."""


@dataclass(frozen=True)
class Heldout:
    """Per-row outcomes of a run. Each mapping goes from a step to its outcomes; 0 is the base."""

    select: Mapping[int, Outcomes]
    """Of every gate that the pick was made from."""
    report: Mapping[int, Outcomes]
    """Of step 0 and of the picked step."""
    select_questions: Questions | None = None
    """What each row asks: rows that ask the same change their signs together. None: all differ."""
    report_questions: Questions | None = None


class Better(NamedTuple):
    """Of "the picked checkpoint solves more rows than step 0"."""

    p: float
    """One-sided; at least 1 / (flips + 1)."""
    at_least: float
    """The lift, a share of all held-out rows, that is left when as much is taken off as chance and
    the picking give in all but `ALPHA` of the cases: above zero exactly where p is `ALPHA` or less.
    """


def p_better(heldout: Heldout, picked: int, *, seed: int, flips: int = FLIPS) -> float:
    """The p-value alone."""
    return better(heldout, picked, seed=seed, flips=flips).p


def better(heldout: Heldout, picked: int, *, seed: int, flips: int = FLIPS) -> Better:
    """Test and lower bound of the lift of the picked checkpoint.

    Null: step 0 and every gated checkpoint are alike, so each row's differences may change their
    sign together (Westfall and Young 1993, max-T by permutation; Nichols and Holmes 2002). Nothing
    is gained when step 0 itself was picked.
    """
    if picked == 0:
        return Better(1.0, 0.0)
    gated = [step for step in heldout.select if step != 0]
    select = _differences(heldout.select, gated, heldout.select_questions)
    report = _differences(heldout.report, [picked], heldout.report_questions)
    gained = int(select[:, gated.index(picked)].sum() + report.sum())
    select = select[select.any(axis=1)]  # a question that no gate changed flips into itself
    sizes = Counter(np.abs(report[report != 0]).tolist())
    draw = np.random.default_rng(seed)
    nulls: list[Ints] = []
    for start in range(0, flips, _CHUNK):
        size = min(_CHUNK, flips - start)
        best = _flipped(draw, size, select).max(axis=1, initial=0)
        # One column of signs adds up to a fair coin's balance.
        balance = sum(
            many * (2 * draw.binomial(changed, 0.5, size) - changed)
            for many, changed in sorted(sizes.items())
        )
        # Where no checkpoint beats step 0 on `select`, step 0 is picked and gains nothing.
        nulls.append(np.where(best > 0, best + balance, 0))
    highest_first = np.sort(np.concatenate(nulls))[::-1]
    as_good = int((highest_first >= gained).sum())
    chance = int(highest_first[max(0, math.floor(ALPHA * (flips + 1)) - 1)])
    rows = len(heldout.select[0]) + len(heldout.report[0])
    return Better((as_good + 1) / (flips + 1), (gained - chance) / rows)


def _differences(
    outcomes: Mapping[int, Outcomes], steps: Sequence[int], questions: Questions | None
) -> Ints:
    """(questions, steps): rows that each step solves and step 0 does not, less the other way.

    A row that one of the two did not judge differs in nothing.
    """
    base = _numbers(outcomes[0])
    found = np.stack([_numbers(outcomes[step]) - base for step in steps], axis=1)
    rows = np.nan_to_num(found).astype(np.int64)
    if questions is None:
        return rows
    place: dict[Hashable, int] = {}
    of_row = [place.setdefault(question, len(place)) for question in questions]
    sums = np.zeros((len(place), len(steps)), dtype=np.int64)
    np.add.at(sums, of_row, rows)
    return sums


def _numbers(outcomes: Outcomes) -> npt.NDArray[np.float64]:
    return np.asarray([np.nan if one is None else one for one in outcomes], dtype=np.float64)


def _flipped(draw: np.random.Generator, size: int, differences: Ints) -> Ints:
    """(size, steps): sums over questions whose signs were drawn anew, eight a byte."""
    bits = draw.integers(0, 256, (size, -(-len(differences) // 8)), dtype=np.uint8)
    kept = np.unpackbits(bits, axis=1, count=len(differences))
    # Whole numbers, also because no BLAS starts threads for them on a busy box.
    kept_twice = kept.astype(np.int32) @ (2 * differences).astype(np.int32)
    sums: Ints = kept_twice - differences.sum(axis=0)
    return sums
