"""How the pool moved: rollouts are counted, prompts are what is independent."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from scipy.special import stdtrit

from engine.contract.intervals import compare
from engine.verdict.trend import NO_RISE, Tally, over_run, rise, student, written
from engine.verdict.verdicts import judge

PUBLISHED = (0.55, 0.61, 0.56, 0.64, 0.59, 0.68, 0.65, 0.74, 0.70, 0.77, 0.72, 0.76)
"""Twelve steps of 256 rollouts."""


def steps_of(rates: Sequence[float], prompts: int, k: int) -> dict[int, str]:
    """Each step asks prompts of its own; of the k rollouts of each a share succeeds."""
    draw = random.Random(1)
    found = {}
    for step, rate in enumerate(rates, 1):
        tallies = [
            Tally(step * prompts + i, sum(draw.random() < rate for _ in range(k)), k)
            for i in range(prompts)
        ]
        found[step] = written(tallies)
    return found


@pytest.mark.requirement("RL-06")
@pytest.mark.parametrize("counted", [True, False])
def test_twelve_steps_of_a_rising_pool_and_a_flat_report_are_pool_only(counted: bool) -> None:
    """10 of 100 rows gained, 10 lost; also where an old run kept its steps' scores alone."""
    scores = dict(enumerate(PUBLISHED, 1))
    groups = steps_of(PUBLISHED, 64, 4) if counted else {}
    before = [True] * 50 + [False] * 50
    after = [False] * 10 + [True] * 50 + [False] * 40

    found = over_run(scores, groups)

    assert found.low > 0
    assert judge(compare(before, after), 1.0, found, 30) == "pool only"


@pytest.mark.parametrize(("prompts", "shown"), [(4, False), (64, True)])
def test_the_same_scores_say_more_the_more_rollouts_stand_behind_them(
    prompts: int, shown: bool
) -> None:
    """From 0.5 to 0.6 in six steps: seen with 256 rollouts a step, not with 16."""
    rates = [0.5, 0.5, 0.55, 0.55, 0.6, 0.6]

    found = over_run(dict(enumerate(rates, 1)), steps_of(rates, prompts, 4))

    assert (found.low > 0) == shown


def test_rollouts_of_one_prompt_are_one_observation() -> None:
    """Eight prompts, all solved or all not: sixteen rollouts a prompt say no more than one."""

    def side(k: int, solved: int, first: int) -> list[Tally]:
        return [Tally(first + i, k * (i < solved), k) for i in range(8)]

    one = rise(side(1, 3, 0), side(1, 5, 8), 0.04)
    many = rise(side(16, 3, 0), side(16, 5, 8), 0.04)

    assert many.low == pytest.approx(one.low)


def test_a_prompt_that_comes_back_is_held_against_itself() -> None:
    """Hard and easy prompts, each one rollout better than before: their difficulty cancels out."""
    early = [Tally(i, i % 5, 8) for i in range(10)]
    late = [Tally(i, i % 5 + 1, 8) for i in range(10)]
    elsewhere = [Tally(10 + one.prompt, one.solved, 8) for one in late]

    assert rise(early, late, 0.04).low == pytest.approx(1 / 8)
    assert rise(early, elsewhere, 0.04).low < 0


def test_steps_without_counts_are_observations_of_their_own() -> None:
    """Student's t of two means: 0.5 ± 0.1 against 0.8 ± 0.1, four steps each, six degrees; the
    thirds lie eight of twelve steps apart."""
    scores = [0.4, 0.5, 0.5, 0.6, 0.0, 0.0, 1.0, 1.0, 0.7, 0.8, 0.8, 0.9]

    found = over_run(dict(enumerate(scores, 1)))

    error = (2 * (0.02 / 3) / 4) ** 0.5

    assert found.by == pytest.approx(0.3 * 12 / 8)
    assert found.low == pytest.approx((0.3 - 2.1043 * error) * 12 / 8, abs=1e-3)


@pytest.mark.parametrize("free", [1, 2, 3, 4, 6, 12, 70, 5000])
@pytest.mark.parametrize("share", [0.9, 0.96, 0.99])
def test_the_reference_is_students(free: int, share: float) -> None:
    """Against scipy's, within a hundredth."""
    assert student(share, free) == pytest.approx(float(stdtrit(free, share)), rel=0.01)


def test_nothing_is_said_of_too_little() -> None:
    """One step on either side, one prompt each, or a part that sampled nothing."""
    assert over_run({1: 0.1, 2: 0.5, 3: 0.9}) == NO_RISE
    assert over_run({}) == NO_RISE
    assert rise([], [Tally(1, 1, 1)], 0.04) == NO_RISE


def test_a_run_that_began_before_rollouts_were_counted_is_judged_by_its_steps() -> None:
    """Half of its steps have counts: those of the other half cannot be made up."""
    scores = dict(enumerate(PUBLISHED, 1))
    groups = steps_of(PUBLISHED, 64, 4)
    half = {step: text for step, text in groups.items() if step > 6}

    assert over_run(scores, half) == over_run(scores)
    assert over_run(scores, groups) != over_run(scores)
