"""How many rows a split gives to each part, asked forwards and backwards."""

from __future__ import annotations

import pytest

from engine.contract.rl.shares import heldout_frac_for, rows_for, sizes


@pytest.mark.parametrize("select_frac", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("heldout_frac", [0.01, 0.2, 0.5])
@pytest.mark.parametrize("report", [1, 30, 31, 300])
def test_the_smallest_corpus_for_a_report_is_the_smallest(
    report: int, heldout_frac: float, select_frac: float
) -> None:
    """It has enough rows, and one row fewer has not."""
    rows = rows_for(report, heldout_frac, select_frac)

    assert sizes(rows, heldout_frac, select_frac).report >= report
    assert sizes(rows - 1, heldout_frac, select_frac).report < report


@pytest.mark.parametrize("rows", [60, 100, 298, 1000])
def test_the_smallest_share_for_a_report_is_the_smallest(rows: int) -> None:
    """Of whole hundredths up to a half; none where a half is not enough."""
    enough = [c / 100 for c in range(1, 51) if sizes(rows, c / 100, 0.5).report >= 30]

    assert heldout_frac_for(30, rows, 0.5) == (enough[0] if enough else None)


def test_absurd_shares_are_answered_at_once() -> None:
    """A form asks at every change, whatever was typed."""
    assert rows_for(10**9, 1e-9, 1 - 1e-7) > 10**24
