"""What a bench can show, against simulated runs and what the tests behind it really find."""

from __future__ import annotations

import random

import pytest

from engine.contract.intervals import bootstrap, compare
from engine.contract.power import CHANGED, paired_lift, unpaired_lift


@pytest.mark.parametrize(("n", "changed"), [(200, CHANGED), (100, 0.3), (500, 0.05)])
def test_a_lift_of_the_smallest_size_is_found_in_80_of_100_runs(n: int, changed: float) -> None:
    """Simulated rows, judged by the exact test that every verdict uses."""
    lift = paired_lift(n, changed)
    assert lift is not None
    draw = random.Random(4)
    cells = [(False, True), (True, False), (True, True)]
    weights = [(changed + lift) / 2, (changed - lift) / 2, 1 - changed]

    found = 0
    for _ in range(1500):
        pairs = draw.choices(cells, weights, k=n)
        found += compare([b for b, _ in pairs], [a for _, a in pairs]).p_value < 0.05

    assert 0.76 <= found / 1500 <= 0.84


def test_200_rows_can_show_8_points_paired_and_14_unpaired() -> None:
    """At the share of changed rows that is assumed before any is seen."""
    assert paired_lift(200) == pytest.approx(0.08, abs=0.005)
    assert unpaired_lift(200, 200) == pytest.approx(0.14, abs=0.005)


def test_an_unpaired_lift_of_the_smallest_size_is_found_in_80_of_100_runs() -> None:
    """By the z-test with Yates's correction that its formula is of."""
    lift = unpaired_lift(200, 300, 0.4)
    assert lift is not None
    draw = random.Random(5)

    found = 0
    for _ in range(1500):
        first = sum(draw.random() < 0.4 for _ in range(200)) / 200
        second = sum(draw.random() < 0.4 + lift for _ in range(300)) / 300
        pooled = (first * 200 + second * 300) / 500
        spread = (pooled * (1 - pooled) * (1 / 200 + 1 / 300)) ** 0.5
        found += abs(second - first) - (1 / 200 + 1 / 300) / 2 > 1.96 * spread

    assert 0.76 <= found / 1500 <= 0.84


def test_five_rows_show_nothing_whatever_they_say() -> None:
    """Five gained and none lost has p = 0.06; six have p = 0.03."""
    assert paired_lift(5) is None
    assert paired_lift(6) is not None
    assert unpaired_lift(0, 10) is None
    assert unpaired_lift(50, 50, before=1.0) is None


def test_more_rows_show_less_and_more_tests_show_more() -> None:
    """A smaller level asks for a larger lift, and so do more changed rows."""
    lifts = [paired_lift(n) or 1.0 for n in (50, 200, 1000)]

    assert lifts == sorted(lifts, reverse=True)
    assert (paired_lift(200, alpha=0.05 / 8) or 0) > (paired_lift(200) or 1)
    assert (paired_lift(200, 0.4) or 0) > (paired_lift(200, 0.1) or 1)


def test_the_bootstrap_covers_the_mean_as_often_as_it_says() -> None:
    """95 % of the intervals hold the true mean of skewed rewards (simulated, seeded)."""
    draw = random.Random(6)
    covered = 0
    for _ in range(120):
        low, high = bootstrap([draw.random() ** 2 for _ in range(80)])
        covered += low <= 1 / 3 <= high

    assert 0.9 <= covered / 120 <= 0.99


def test_the_bootstrap_draws_questions_and_not_their_copies() -> None:
    """Ten copies of each of eight rewards say as much as the eight."""
    rewards = [0.1, 0.9, 0.3, 0.5, 0.0, 1.0, 0.2, 0.7]
    once = bootstrap(rewards)
    copies = bootstrap(rewards * 10, list(range(8)) * 10)
    taken_for_more = bootstrap(rewards * 10)

    assert copies == pytest.approx(once, abs=1e-9)
    assert taken_for_more[1] - taken_for_more[0] < (once[1] - once[0]) / 2
