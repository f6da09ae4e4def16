"""Intervals and paired tests against published and brute-force values."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from engine.contract.intervals import compare, evidence, independent, mcnemar, newcombe, wilson


@pytest.mark.parametrize(
    ("k", "n", "expected"),
    [  # Newcombe 1998 (Stat. Med. 17:857), table I, method 3
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ],
)
def test_wilson_gives_the_published_limits(k: int, n: int, expected: tuple[float, float]) -> None:
    """Score interval without continuity correction."""
    assert wilson(k, n) == pytest.approx(expected, abs=5e-5)


def test_wilson_contains_its_own_proportion_at_the_ends() -> None:
    """0 of n and n of n are exact limits, not rounded ones."""
    for n in range(1, 60):
        assert wilson(0, n)[0] == 0.0
        assert wilson(n, n)[1] == 1.0
    assert wilson(0, 0) == (0.0, 1.0)


def test_newcombe_gives_the_published_limits() -> None:
    """Newcombe 1998 (Stat. Med. 17:2635), method 10, the example with 36, 12, 2 and 0 pairs."""
    assert newcombe(both=36, gained=12, lost=2, n=50) == pytest.approx((0.0569, 0.3404), abs=5e-5)


def test_newcombe_covers_the_truth_as_often_as_it_says() -> None:
    """95 % of the intervals hold the true difference (simulated, seeded)."""
    draw = random.Random(0)
    cells, weights = [(True, True), (False, True), (True, False), (False, False)], [55, 20, 5, 20]
    covered = 0
    for _ in range(400):
        pairs = draw.choices(cells, weights, k=200)
        low, high = compare([b for b, _ in pairs], [a for _, a in pairs]).ci95
        covered += low <= 0.15 <= high

    assert 0.92 <= covered / 400 <= 0.98


def test_the_unpaired_interval_gives_the_published_limits() -> None:
    """Newcombe 1998 (Stat. Med. 17:873), table II, method 10: 56 of 70 less 48 of 80."""
    assert independent(48, 80, 56, 70) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert independent(0, 0, 1, 1) == (-1.0, 1.0)


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (1, 0), (5, 1), (3, 3), (2, 7)])
def test_mcnemar_counts_coin_tosses_at_least_as_uneven(gained: int, lost: int) -> None:
    """Against all outcomes of n fair coins; equal sides give 1."""
    n, seen = gained + lost, abs(gained - lost)
    outcomes = itertools.product((0, 1), repeat=n)
    uneven = sum(abs(n - 2 * sum(coins)) >= seen for coins in outcomes)

    assert mcnemar(gained, lost) == pytest.approx(uneven / 2**n)


def test_mcnemar_survives_large_counts() -> None:
    """Thousands of differing pairs are a number, not an overflow."""
    assert 0 <= mcnemar(3000, 2000) < 1e-40
    assert mcnemar(2500, 2500) == 1.0


def test_the_comparison_is_paired_item_by_item() -> None:
    """The same two rates with other partners are other evidence."""
    before = [True] * 50 + [False] * 50
    same_items = compare(before, [True] * 60 + [False] * 40)
    shuffled = compare(before, [False] * 40 + [True] * 60)

    assert (same_items.gained, same_items.lost, same_items.lift) == (10, 0, 0.1)
    assert (shuffled.gained, shuffled.lost, shuffled.lift) == (50, 40, 0.1)
    assert same_items.ci95[0] > 0 > shuffled.ci95[0]
    assert same_items.p_value < 0.01 < shuffled.p_value


def test_lists_of_different_length_are_a_mistake() -> None:
    """Pairing by place needs the same items."""
    with pytest.raises(ValueError, match="zip"):
        compare([True], [True, False])


def test_no_items_give_no_number() -> None:
    """NaN in Python, null in JSON: never 0."""
    assert math.isnan(compare([], []).lift)


def test_copies_of_a_question_are_one_observation() -> None:
    """Ten questions asked three times each, solved alike: as wide and as doubtful as ten rows."""
    before = [i < 4 for i in range(10)]
    after = [i in {0, 1, 4, 5, 6} for i in range(10)]

    once = compare(before, after)
    thrice = compare(before * 3, after * 3, list(range(10)) * 3)

    assert (thrice.n, thrice.different) == (30, 10)
    assert thrice.lift == pytest.approx(once.lift)
    assert thrice.ci95 == pytest.approx(once.ci95)
    assert thrice.p_value == once.p_value
    assert compare(before * 3, after * 3).p_value < once.p_value


def test_the_interval_holds_the_truth_where_questions_come_back() -> None:
    """45 rows of 37 questions, copies solved alike: 95 % cover it (simulated, seeded)."""
    draw = random.Random(0)
    asks = [*range(37), *[0] * 4, *[1] * 4]
    cells, weights = [(True, True), (False, True), (True, False), (False, False)], [40, 30, 10, 20]
    covered = 0
    for _ in range(600):
        pairs = draw.choices(cells, weights, k=37)
        found = compare([pairs[i][0] for i in asks], [pairs[i][1] for i in asks], asks)
        covered += found.ci95[0] <= 0.2 <= found.ci95[1]

    assert covered / 600 >= 0.93
    assert evidence(asks) < 37


@pytest.mark.parametrize("seed", range(5))
def test_whole_questions_change_their_signs(seed: int) -> None:
    """Against every assignment of signs, for copies that were not solved alike."""
    draw = random.Random(seed)
    asks = [draw.randrange(7) for _ in range(16)]
    before, after = ([draw.random() < 0.5 for _ in asks] for _ in range(2))
    sums = [sum(after[i] - before[i] for i in range(16) if asks[i] == q) for q in range(7)]
    signs = list(itertools.product((-1, 1), repeat=7))
    far = [abs(sum(map(int.__mul__, one, sums))) >= abs(sum(sums)) for one in signs]

    assert compare(before, after, asks).p_value == pytest.approx(sum(far) / len(far))
