"""The verdicts are calibrated: a short form of `make bench-honesty`."""

from __future__ import annotations

import pytest
from scipy.stats import binom

from bench.honesty import (
    HACKS,
    NO_GAIN,
    POWER,
    SIZES,
    Case,
    World,
    alarms,
    nights_with_a_gain,
    simulate,
    verdicts_of,
)

RUNS = 120


def at_n(cases: list[Case], n: int) -> Case:
    return next(case for case in cases if case.heldout == n)


def test_best_of_twelve_without_a_true_gain_is_rarely_called_one() -> None:
    """At most 5 %; fails where so many false gains were a one-in-a-thousand chance."""
    verdicts = verdicts_of(simulate(at_n(NO_GAIN, 200), RUNS, seed=3))

    assert verdicts["gain"] <= binom.ppf(0.999, RUNS, 0.05)


def test_a_gamed_pool_is_called_what_it_is() -> None:
    """Pool +20 points, held-out 0: pool only, or worse, in at least 95 %."""
    verdicts = verdicts_of(simulate(at_n(HACKS, 500), RUNS, seed=3))

    assert verdicts["pool only"] + verdicts["loss"] >= binom.ppf(0.001, RUNS, 0.95)


def test_a_gain_of_five_points_on_a_thousand_rows_is_mostly_seen() -> None:
    """A rule that never says gain would pass the other two."""
    case = next(c for c in POWER if c.heldout == 1000 and c.world.lift == pytest.approx(0.05))

    assert verdicts_of(simulate(case, 60, seed=3))["gain"] >= 40


def test_the_best_of_a_night_of_ten_is_rarely_announced_for_nothing() -> None:
    """Some run of these nights says gain; not more than 5 % of them may begin with one."""
    found = nights_with_a_gain(simulate(at_n(NO_GAIN, 200), 400, seed=3), 10)

    assert found.said > 0.1
    assert found.announced <= binom.ppf(0.999, found.nights, 0.05) / found.nights


def test_the_inversion_alarm_rarely_sounds_where_held_out_does_not_fall() -> None:
    """At most in 5 % of runs whose pool rises alone; an alarm that never sounds would pass that."""
    flat = alarms(Case("", World(0.0, 0.2), 200, SIZES[0]), 60, seed=3)
    fallen = alarms(Case("", World(-0.2, 0.3), 200, SIZES[0]), 40, seed=3)

    assert flat * 60 <= binom.ppf(0.999, 60, 0.05)
    assert fallen > 0.5
