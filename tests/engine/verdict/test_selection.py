"""The test that knows how often was looked, and the words that follow from it."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from engine.contract.intervals import compare
from engine.verdict.selection import Heldout, p_better
from engine.verdict.trend import NO_RISE, Rise, over_run, rise, unevenness
from engine.verdict.verdicts import ALPHA, best_step, judge, published_step


def exact(heldout: Heldout, picked: int) -> float:
    """The same p-value by going through every assignment of signs."""
    gates = [s for s in heldout.select if s != 0]
    rows = len(heldout.select[0])

    def differences(table: dict[int, list[bool]], step: int) -> list[int]:
        return [int(a) - int(b) for a, b in zip(table[step], table[0], strict=True)]

    select = [differences(dict(heldout.select), s) for s in gates]  # type: ignore[arg-type]
    report = differences(dict(heldout.report), picked)  # type: ignore[arg-type]
    gained = sum(select[gates.index(picked)]) + sum(report)
    hits = total = 0
    for signs in itertools.product((-1, 1), repeat=rows + len(report)):
        best = max(sum(s * d for s, d in zip(signs, column, strict=False)) for column in select)
        flipped = sum(s * d for s, d in zip(signs[rows:], report, strict=True))
        hits += (best + flipped if best > 0 else 0) >= gained
        total += 1
    return hits / total


def outcomes(text: str) -> list[bool]:
    return [c == "1" for c in text]


def test_the_p_value_is_that_of_every_assignment_of_signs() -> None:
    """Against the full enumeration of a table small enough for it."""
    heldout = Heldout(
        select={0: outcomes("100010"), 5: outcomes("110110"), 10: outcomes("111000")},
        report={0: outcomes("10010"), 5: outcomes("11011")},
    )

    found = p_better(heldout, 5, seed=1, flips=100_000)

    assert found == pytest.approx(exact(heldout, 5), abs=0.006)


def test_the_same_seed_gives_the_same_p_value() -> None:
    """A resumed run says what an unbroken one says."""
    draw = random.Random(3)
    table = {step: [draw.random() < 0.5 for _ in range(50)] for step in (0, 1, 2)}
    heldout = Heldout(table, {0: table[1], 2: table[0]})

    assert p_better(heldout, 2, seed=7) == p_better(heldout, 2, seed=7)


def test_a_better_score_costs_more_evidence_the_more_gates_were_looked_at() -> None:
    """The best of twelve is good by luck more often than the only one."""
    draw = random.Random(0)
    base = [draw.random() < 0.5 for _ in range(100)]
    best = [b or draw.random() < 0.15 for b in base]
    others = {s: [draw.random() < 0.5 for _ in base] for s in range(2, 13)}
    report = {0: base, 1: base}

    alone = p_better(Heldout({0: base, 1: best}, report), 1, seed=0)
    of_twelve = p_better(Heldout({0: base, 1: best, **others}, report), 1, seed=0)

    assert alone < of_twelve


def test_the_base_is_never_better_than_itself() -> None:
    """Step 0 was picked: there is nothing to test."""
    base = outcomes("1010")

    assert p_better(Heldout({0: base, 5: base}, {0: base}), 0, seed=0) == 1.0


def test_the_pick_is_the_earliest_of_the_highest() -> None:
    """Later is no merit."""
    assert best_step({0: 0.5, 10: 0.7, 20: 0.7}) == 10
    assert best_step({}) is None


BASE = [True] * 50 + [False] * 50
BETTER = [True] * 60 + [False] * 40
WORSE = [True] * 35 + [False] * 65


@pytest.mark.parametrize(
    ("after", "p", "pool", "report_min", "verdict"),
    [
        (BETTER, ALPHA, NO_RISE, 30, "gain"),
        (BETTER, ALPHA + 0.001, NO_RISE, 30, "no gain proven"),
        (BASE, 0.001, NO_RISE, 30, "no gain proven"),  # select alone is not enough
        (WORSE, 1.0, NO_RISE, 30, "loss"),
        (WORSE, 1.0, Rise(0.3, 0.2), 30, "loss"),
        (BASE, 1.0, Rise(0.3, 0.2), 30, "pool only"),
        (BASE, 1.0, Rise(0.3, -0.1), 30, "no gain proven"),  # a pool as uneven as that
        (BASE, 1.0, Rise(0.04, 0.03), 30, "no gain proven"),  # too little to speak of
        (BETTER, 0.5, Rise(0.1, 0.08), 30, "no gain proven"),  # held-out may have risen as much
        (BETTER, ALPHA, Rise(0.5, 0.4), 30, "gain"),
        (BETTER, 0.0001, NO_RISE, 101, "no verdict"),
    ],
)
def test_the_rule_for_each_verdict(
    after: list[bool], p: float, pool: Rise, report_min: int, verdict: str
) -> None:
    """Each line of the table in engine/verdict/verdicts.py."""
    assert judge(compare(BASE, after), p, pool, report_min) == verdict


def test_only_a_gain_publishes_a_checkpoint() -> None:
    """Whatever is not proven ships the base."""
    assert published_step("gain", 40) == 40
    for verdict in ("no gain proven", "pool only", "loss", "no verdict"):
        assert published_step(verdict, 40) == 0


def test_a_rise_is_the_difference_of_means_with_three_standard_errors_below() -> None:
    """Two windows of four steps with variance 0.01 a step: error √(0.01 · (1/4 + 1/4))."""
    found = rise([0.4, 0.5, 0.5, 0.6], [0.7, 0.8, 0.8, 0.9], 0.01)

    assert found.by == pytest.approx(0.3)
    assert found.low == pytest.approx(0.3 - 3 * (0.01 / 2) ** 0.5)
    assert rise([], [0.9], 0.01) == NO_RISE


def test_neither_a_trend_nor_a_leap_is_noise() -> None:
    """The variance of what is left when both are taken away, within a third of the truth."""
    draw = random.Random(0)
    scores = [0.001 * s + 0.3 * (s > 200) + draw.gauss(0, 0.05) for s in range(400)]

    assert unevenness(scores) == pytest.approx(0.05**2, rel=0.33)
    assert unevenness([0.1, 0.5, 0.9]) == math.inf


def test_over_a_run_the_first_eighth_is_held_against_the_last() -> None:
    """Thirty-two steps: four against four; three steps say nothing."""
    pool = {s: 0.5 if s <= 16 else 0.9 for s in range(1, 33)}

    assert (over_run(pool).by, over_run(pool).low) == pytest.approx((0.4, 0.4))
    assert over_run({1: 0.1, 2: 0.5, 3: 0.9}) == NO_RISE
