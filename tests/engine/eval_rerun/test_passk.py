"""The estimator of pass@k, and its interval."""

from __future__ import annotations

import itertools

import pytest

from engine.evaluate.passk import counted_ks, pass_at, pass_at_over


@pytest.mark.requirement("EX-18")
@pytest.mark.parametrize("solved", range(7))
@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_pass_at_k_is_the_share_of_choices_that_hold_a_solved_sample(k: int, solved: int) -> None:
    """Counted out over every choice of k among six samples: Chen et al. 2021, equation 1."""
    outcomes = [i < solved for i in range(6)]
    choices = list(itertools.combinations(outcomes, k))

    assert pass_at(k, 6, solved) == pytest.approx(sum(map(any, choices)) / len(choices))


def test_rows_with_fewer_judged_samples_than_k_are_not_in_its_mean() -> None:
    """A row of two samples says nothing of pass@3."""
    rows = [(4, 1), (2, 2)]

    one, three = (pass_at_over(k, rows, "ab") for k in (1, 3))

    assert one is not None
    assert three is not None
    assert (one.rows, three.rows) == (2, 1)
    assert one.value == pytest.approx(0.625)
    assert three.value == pytest.approx(0.75)
    assert pass_at_over(5, rows, "ab") is None


def test_the_interval_is_as_wide_as_the_rows_are_apart() -> None:
    """Rows all half solved are surer of 0.5 than rows solved wholly or never; none is exact."""
    alike = pass_at_over(1, [(8, 4)] * 50, range(50))
    apart = pass_at_over(1, [(8, 0), (8, 8)] * 25, range(50))

    assert alike is not None
    assert apart is not None
    assert alike.value == apart.value == 0.5
    assert 0.36 < apart.low < alike.low < 0.5 < alike.high < apart.high < 0.64
    nothing = pass_at_over(1, [(8, 0)] * 50, range(50))
    assert nothing is not None
    assert (nothing.low, nothing.value) == (0.0, 0.0)
    assert 0.05 < nothing.high < 0.1


def test_copies_of_a_question_are_one_row() -> None:
    """Fifty times the same question is no better than once."""
    copies = pass_at_over(1, [(8, 4)] * 50, [1] * 50)
    once = pass_at_over(1, [(8, 4)], [1])

    assert copies is not None
    assert once is not None
    assert copies.high - copies.low == pytest.approx(once.high - once.low)


def test_many_samples_are_told_at_every_k_up_to_sixteen_and_then_at_powers_of_two() -> None:
    """A run of 1,024 samples has a table that a person can read."""
    assert counted_ks(1000) == [*range(1, 17), 32, 64, 128, 256, 512, 1000]
