"""What repeated runs have in common is tested between runs."""

from __future__ import annotations

import pytest
from scipy import stats

from engine.contract.between_runs import spread, t_quantile, t_tail, welch


@pytest.mark.parametrize("df", [1, 1.3, 2, 3.7, 10, 100])
def test_students_distribution_is_scipys(df: float) -> None:
    """Whole and broken degrees of freedom, near the middle and far out."""
    for t in (0.0, 1e-3, 0.5, 1.0, 2.0, 5.0, 20.0, 300.0):
        assert t_tail(t, df) == pytest.approx(stats.t.sf(t, df), rel=1e-9)
    for share in (0.5, 0.8, 0.975, 0.999):
        assert t_quantile(share, df) == pytest.approx(stats.t.ppf(share, df), rel=1e-8, abs=1e-12)


def test_welchs_test_is_scipys() -> None:
    """Difference, degrees of freedom, interval and p, of groups of unequal size and spread."""
    first, second = [0.60, 0.70, 0.65, 0.61], [0.80, 0.82, 0.79]

    found = welch(spread(first), spread(second))

    expected = stats.ttest_ind(second, first, equal_var=False)
    ends = expected.confidence_interval(0.95)
    assert found is not None
    assert (found.p_value, found.df) == pytest.approx((expected.pvalue, expected.df))
    assert found.ci95 == pytest.approx((ends.low, ends.high))


def test_the_interval_of_a_mean_is_students_and_ends_where_scores_end() -> None:
    """Two runs say little: their interval would reach beyond all scores."""
    values = [0.60, 0.64, 0.68]
    ends = stats.ttest_1samp(values, 0).confidence_interval(0.95)

    assert spread(values).ci95 == pytest.approx((ends.low, ends.high))
    assert spread([0.2, 0.9]).ci95 == (0.0, 1.0)


@pytest.mark.parametrize("values", [[0.6], [0.6, 0.6, 0.6], [0.1 + 0.2, 0.3]])
def test_one_run_or_none_of_them_apart_gets_no_interval_and_no_test(values: list[float]) -> None:
    """There is nothing to hold a difference against; rounding is no spread."""
    assert spread(values).ci95 is None
    assert welch(spread(values), spread([0.5, 0.9])) is None
    assert welch(spread([0.5, 0.9]), spread(values)) is None


def test_what_groups_can_show_is_found_four_times_of_five() -> None:
    """Welch's power at that difference, by the noncentral t."""
    first, second = spread([0.60, 0.64, 0.68, 0.62, 0.66]), spread([0.61, 0.65, 0.69, 0.63, 0.67])

    found = welch(first, second)

    assert found is not None
    error = (found.ci95[1] - found.difference) / stats.t.ppf(0.975, found.df)
    power = stats.nct.sf(stats.t.ppf(0.975, found.df), found.df, found.shows / error)
    assert power == pytest.approx(0.8, abs=0.03)
