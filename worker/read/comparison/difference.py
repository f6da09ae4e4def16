"""The difference of two runs on their held-out rows: paired where the rows are the same.

Success rates: Newcombe's interval and McNemar's exact test, the functions behind a run's own lift.
Interval and test are two approximations and may differ; a difference is said where both show it. A
run's own *gain* asks more rows by another test (decision 11), so it may stand where these two prove
nothing. Detection: F1 over all objects, with the percentile bootstrap over pictures that a run uses
for its lift, and the exact test on pictures solved. Several runs against one are judged with Holm's
correction. Knows no file and no job.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from engine.contract.intervals import compare, evidence, independent
from worker.read.comparison.heldout import Heldout, Scored, same_question

ALPHA = 0.05
LEAST_ROWS = 30
"""Fewer than these carry no verdict; a run's own `report_min` says the same by default."""
_RESAMPLES = 1000
_SEED = 0
_MOST_DRAWN = 2_000_000
"""Pictures drawn for one interval: beyond that fewer resamples have to do."""

Counts = tuple[int, int, int]
Word = Literal["better", "worse", "no difference proven", "too few rows", "not the same rows"]


class Difference(BaseModel):
    """`b` against `a`; scores are shares of one."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    paired: bool
    """The rows are the same: each run's own luck with them cancels out."""
    measure: str
    """success or f1."""
    n: int
    """Rows that stand in both; without pairing 0."""
    different: int
    """Questions, or pictures, among them: fewer where some stand there more than once, which count
    as one observation."""
    only_a: int
    only_b: int
    """Rows that stand in one of them alone."""
    changed: int
    """Rows of one id that asked something else: left out."""
    a: float
    b: float
    lift: float
    low: float
    high: float
    """95 % interval of the lift."""
    gained: int
    """Rows that only b solved."""
    lost: int
    """Rows that only a solved."""
    p_value: float | None
    """Exact McNemar test on the rows solved; null without pairing."""
    p_holm: float | None = None
    """The same, corrected for every run held against the first one."""
    word: Word = "no difference proven"


def difference(a: Heldout, b: Heldout) -> Difference:
    """Raises ValueError when the two measure different things."""
    if a.measure != b.measure:
        raise ValueError(f"{a.measure} and {b.measure} cannot be subtracted")
    shared = [name for name in a.rows if name in b.rows]
    same = [n for n in shared if same_question(a.rows[n].outcome, b.rows[n].outcome)]
    left = {
        "only_a": len(a.rows) - len(shared),
        "only_b": len(b.rows) - len(shared),
        "changed": len(shared) - len(same),
    }
    if not same:
        return _unpaired(a, b, left)
    return _paired([a.rows[n] for n in same], [b.rows[n] for n in same], a.measure, left)


def judged(differences: Sequence[Difference]) -> list[Difference]:
    """Each with its corrected p-value and its word."""
    corrected = holm([one.p_value for one in differences])
    return [
        one.model_copy(update={"p_holm": p, "word": _word(one, p)})
        for one, p in zip(differences, corrected, strict=True)
    ]


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm 1979: step-down correction of the known ones; None stays None.

    >>> holm([0.01, None, 0.04])
    [0.02, None, 0.04]
    """
    known = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    found: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        found[index] = highest
    return found


def _paired(
    a: Sequence[Scored], b: Sequence[Scored], measure: str, left: Mapping[str, int]
) -> Difference:
    asks = questions_of(a)
    solved = compare(
        [bool(one.outcome.success) for one in a], [bool(one.outcome.success) for one in b], asks
    )
    before, after, lift, ci95 = solved.before, solved.after, solved.lift, solved.ci95
    if measure == "f1":
        first, second = _by_question(_counts(a), asks), _by_question(_counts(b), asks)
        counts = list(zip(first, second, strict=True))
        before, after = pooled_f1(first), pooled_f1(second)
        lift, ci95 = after - before, _bootstrap(counts)
    return Difference(
        paired=True,
        measure=measure,
        n=len(a),
        different=solved.different,
        **left,
        a=before,
        b=after,
        lift=lift,
        low=ci95[0],
        high=ci95[1],
        gained=solved.gained,
        lost=solved.lost,
        p_value=solved.p_value,
    )


def _unpaired(a: Heldout, b: Heldout, left: Mapping[str, int]) -> Difference:
    first, second = list(a.rows.values()), list(b.rows.values())
    if a.measure == "f1":
        counts = [_by_question(_counts(rows), questions_of(rows)) for rows in (first, second)]
        before, after = pooled_f1(counts[0]), pooled_f1(counts[1])
        low, high = _bootstrap_apart(*counts)
    else:
        solved = [sum(bool(one.outcome.success) for one in rows) for rows in (first, second)]
        before, after = solved[0] / len(first), solved[1] / len(second)
        n_a, n_b = (evidence(questions_of(rows)) for rows in (first, second))
        low, high = independent(before * n_a, n_a, after * n_b, n_b)
    return Difference(
        paired=False,
        measure=a.measure,
        n=0,
        different=0,
        **left,
        a=before,
        b=after,
        lift=after - before,
        low=low,
        high=high,
        gained=0,
        lost=0,
        p_value=None,
        word="not the same rows",
    )


def _word(one: Difference, p: float | None) -> Word:
    """Only where interval and exact test both show it, as for a run's own loss: they may differ."""
    if not one.paired or p is None:
        return "not the same rows"
    if one.different < LEAST_ROWS:
        return "too few rows"
    if p < ALPHA and one.low > 0 and one.gained > one.lost:
        return "better"
    if p < ALPHA and one.high < 0 and one.lost > one.gained:
        return "worse"
    return "no difference proven"


def questions_of(rows: Sequence[Scored]) -> list[Hashable]:
    """What each row asks; one that does not say is a question of its own."""
    return [
        ("row", one.place) if one.outcome.question is None else one.outcome.question for one in rows
    ]


def _by_question(counts: Sequence[Counts], asks: Sequence[Hashable]) -> list[Counts]:
    """Sums of the rows that ask the same, for they are drawn together."""
    sums: dict[Hashable, Counts] = {}
    for question, (hits, said, there) in zip(asks, counts, strict=True):
        a, b, c = sums.get(question, (0, 0, 0))
        sums[question] = (a + hits, b + said, c + there)
    return list(sums.values())


def pooled_f1(counts: Sequence[Counts]) -> float:
    """Of (hits, predictions, objects) of each picture, over all of them.

    >>> pooled_f1([(1, 1, 2), (0, 1, 0)])
    0.5
    """
    hits, said, there = (sum(one[column] for one in counts) for column in range(3))
    return 2 * hits / max(said + there, 1)


def _counts(rows: Sequence[Scored]) -> list[Counts]:
    return [one.outcome.hits or (0, 0, 0) for one in rows]


def _bootstrap(pairs: Sequence[tuple[Counts, Counts]]) -> tuple[float, float]:
    """Percentile bootstrap over pictures, both runs on the same resampled ones."""
    draw = random.Random(_SEED)
    packed = [_packed(a) | _packed(b) << 2 * _BITS for a, b in pairs]
    sums = (sum(draw.choices(packed, k=len(pairs))) for _ in range(_resamples(len(pairs))))
    return _percentiles([_f1(both >> 2 * _BITS) - _f1(both & _TWO) for both in sums])


def _bootstrap_apart(a: Sequence[Counts], b: Sequence[Counts]) -> tuple[float, float]:
    draw = random.Random(_SEED)
    first, second = list(map(_packed, a)), list(map(_packed, b))
    return _percentiles(
        [
            _f1(sum(draw.choices(second, k=len(b)))) - _f1(sum(draw.choices(first, k=len(a))))
            for _ in range(_resamples(len(a) + len(b)))
        ]
    )


_BITS = 40
_ONE, _TWO = (1 << _BITS) - 1, (1 << 2 * _BITS) - 1


def _packed(counts: Counts) -> int:
    """Hits, and boxes of either side, in one number: then a resample is one sum."""
    hits, said, there = counts
    return hits | (said + there) << _BITS


def _f1(packed: int) -> float:
    return 2 * (packed & _ONE) / max(packed >> _BITS, 1)


def _resamples(pictures: int) -> int:
    return max(200, min(_RESAMPLES, _MOST_DRAWN // max(pictures, 1)))


def _percentiles(lifts: Sequence[float]) -> tuple[float, float]:
    """2.5 % and 97.5 %, linear between neighbours."""
    ordered = sorted(lifts)
    low, high = (_at(ordered, share * (len(ordered) - 1)) for share in (0.025, 0.975))
    return low, high


def _at(ordered: Sequence[float], place: float) -> float:
    floor = int(place)
    above = ordered[min(floor + 1, len(ordered) - 1)]
    return ordered[floor] + (above - ordered[floor]) * (place - floor)
