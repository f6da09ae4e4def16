"""Which optimizer step runs which channel."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.stage2.schedule import channel_of


@pytest.mark.requirement("AB-06")
@pytest.mark.parametrize(
    ("b_ratio", "channels"),
    [(0.0, "aaaaaaaa"), (1.0, "bbbbbbbb"), (0.5, "abababab"), (0.25, "aaabaaab")],
)
def test_channels_of_the_first_steps(b_ratio: float, channels: str) -> None:
    """b iff floor((s + 1) b) > floor(s b), steps from 0."""
    assert "".join(channel_of(step, b_ratio) for step in range(8)) == channels


@pytest.mark.requirement("AB-06")
@given(st.integers(0, 1000), st.integers(1, 10_000))
def test_channel_b_has_its_share_of_every_beginning(thousandths: int, steps: int) -> None:
    """After n steps floor(n b) of them were Channel-B, for the b that was written."""
    b = Fraction(thousandths, 1000)

    at_end = channel_of(steps - 1, thousandths / 1000)

    expected = math.floor(steps * b) - math.floor((steps - 1) * b)
    assert (at_end == "b") == bool(expected)


@pytest.mark.requirement("AB-06")
def test_a_ratio_that_no_double_holds_counts_as_it_was_written() -> None:
    """0.29 · 100 is 28.999… in doubles; a hundred steps have 29 of Channel-B all the same."""
    assert sum(channel_of(step, 0.29) == "b" for step in range(100)) == 29
