"""Amounts at a door: what somebody wrote is told again as that number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.amounts import dollars, exact


@given(st.floats(min_value=0, allow_infinity=False))
def test_an_amount_that_is_read_again_is_the_same_number(amount: float) -> None:
    """A form that shows it and is sent back unchanged changes nothing."""
    assert float(exact(amount)) == amount


@pytest.mark.parametrize(
    ("amount", "told"),
    [(5, "5"), (5.0, "5"), (2.5, "2.5"), (0.1, "0.1"), (1234567.89, "1234567.89")],
)
def test_an_amount_has_no_digit_that_nobody_wrote(amount: float, told: str) -> None:
    """Whole ones are whole."""
    assert exact(amount) == told


@pytest.mark.parametrize(
    ("amount", "told"),
    [(5, "$5"), (2.5, "$2.50"), (0.001, "$0.001"), (1234567.89, "$1234567.89"), (1e21, "$1e+21")],
)
def test_dollars_have_their_cents_in_two_digits(amount: float, told: str) -> None:
    """Whole ones have none, and a thousandth keeps its digit."""
    assert dollars(amount) == told
