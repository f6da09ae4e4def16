"""The test that knows how often was looked, and the words that follow from it."""

from __future__ import annotations

import itertools
import random

import pytest

from engine.contract.intervals import compare
from engine.verdict.selection import Heldout, better, p_better
from engine.verdict.trend import NO_RISE, Rise
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


@pytest.mark.parametrize("chance", [0.02, 0.08, 0.1, 0.12, 0.15, 0.2])
def test_the_lower_bound_is_above_zero_exactly_where_the_test_finds_a_gain(chance: float) -> None:
    """One rule: no gain without an interval that shows it."""
    draw = random.Random(str(chance))
    base = [draw.random() < 0.5 for _ in range(60)]
    gates = {s: [b or draw.random() < chance for b in base] for s in (1, 2, 3)}
    found = better(Heldout({0: base, **gates}, {0: base, 1: gates[1]}), 1, seed=0, flips=2000)

    assert (found.at_least > 0) == (found.p <= ALPHA)


def test_copies_of_a_question_change_their_signs_together() -> None:
    """Ten rows gained that are one question asked ten times are one coin, not ten."""
    base, after = [False] * 10 + [True] * 5, [True] * 15
    table, report = {0: base, 1: after}, {0: [True], 1: [True]}
    copies = ["the one"] * 10 + list("abcde")

    apart = p_better(Heldout(table, report), 1, seed=0, flips=2000)
    together = p_better(Heldout(table, report, copies, ["z"]), 1, seed=0, flips=2000)

    assert apart < 0.01
    assert together == pytest.approx(0.5, abs=0.05)


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


def test_a_pool_that_rose_as_far_as_heldout_may_have_risen_is_no_pool_only() -> None:
    """+10 of 100 rows leave a rise of 13 points possible, and none of 20."""
    report, followed = compare(BASE, BASE), compare(BASE, BETTER)

    assert followed.most == pytest.approx(0.145, abs=0.01)
    assert judge(report, 1.0, Rise(0.13, 0.1), 30, followed) == "no gain proven"
    assert judge(report, 1.0, Rise(0.20, 0.1), 30, followed) == "pool only"


def test_a_verdict_needs_so_many_different_questions() -> None:
    """Forty rows that ask twenty things are twenty."""
    before, after = [False] * 40, [True] * 40
    twice = compare(before, after, [i % 20 for i in range(40)])

    assert judge(compare(before, after), 0.001, NO_RISE, 30) == "gain"
    assert judge(twice, 0.001, NO_RISE, 30) == "no verdict"


def test_only_a_gain_publishes_a_checkpoint() -> None:
    """Whatever is not proven ships the base."""
    assert published_step("gain", 40) == 40
    for verdict in ("no gain proven", "pool only", "loss", "no verdict"):
        assert published_step(verdict, 40) == 0
