"""A night on one axis: real hours of the zone's clock, also over midnight and where it changes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from app.charts.night import Bar, Night
from app.text import wording
from tests.worker.lane_rows import BERLIN, berlin

pytestmark = pytest.mark.requirement("UI-04")


@pytest.fixture(autouse=True)
def _in_berlin() -> Iterator[None]:
    with wording.times_in(BERLIN):
        yield


def night(evening: str, opens: str, closes: str, *, runs: bool = True) -> Night:
    """From an evening on, with a window."""
    edges = {"opens": berlin(opens), "closes": berlin(closes)}
    return Night.around(berlin(evening), runs=runs, last=None, **edges)


def hours(drawn: str) -> list[str]:
    """What its axis names, from left to right."""
    found = re.findall(r'<text class="[^"]+" x="([\d.]+)%"[^>]*>([^<]+)</text>', drawn)
    return [text for _, text in sorted(found, key=lambda one: float(one[0]))]


def test_a_night_over_midnight_is_one_axis() -> None:
    """Every hour once, from the window's opening to its end."""
    axis = night("2026-06-01T21:14", "2026-06-01T22:00", "2026-06-02T07:00")

    assert hours(axis.head())[:5] == ["21:14", "22:00", "23:00", "00:00", "01:00"]
    assert hours(axis.head())[-2:] == ["06:00", "07:00"]
    assert 0 < axis.x(axis.now) < axis.x(berlin("2026-06-01T22:00"))


@pytest.mark.parametrize(
    ("evening", "morning", "shown"),
    [
        ("2026-03-28", "2026-03-29", ["00:00", "01:00", "03:00", "04:00"]),
        ("2026-10-24", "2026-10-25", ["00:00", "01:00", "02:00", "02:00", "03:00", "04:00"]),
    ],
)
def test_the_hours_of_a_night_in_which_the_clock_changes_are_those_of_the_clock(
    evening: str, morning: str, shown: list[str]
) -> None:
    """In spring 02:00 is left out, in autumn it comes twice; a time then bears its zone."""
    axis = night(f"{evening}T21:30", f"{evening}T22:00", f"{morning}T07:00")

    named = hours(axis.head())
    begin = named.index("00:00")
    assert named[begin : begin + len(shown)] == shown
    assert axis.clock(berlin(f"{evening}T23:00")).endswith((" CET", " CEST"))


def test_a_window_far_away_begins_the_axis() -> None:
    """At nine in the morning nobody looks at thirteen empty hours, unless something runs."""
    away = ("2026-06-01T09:00", "2026-06-01T22:00", "2026-06-02T07:00")

    assert hours(night(*away, runs=False).head())[0] == "21:00"
    assert night(*away).x(berlin("2026-06-01T22:00")) > 50


def test_a_bar_shows_its_length_its_words_and_between_which_times_it_ends() -> None:
    """What stands outside of the axis ends at its edge; words are escaped."""
    axis = night("2026-06-01T21:14", "2026-06-01T22:00", "2026-06-02T07:00")
    begin, end = berlin("2026-06-01T23:00"), berlin("2026-06-02T02:00")

    drawn = axis.row([Bar(begin, end, words="3 h", likely=(end - 600, end + 600))], "<3 h>")

    width = axis.x(end) - axis.x(begin)
    assert f'<rect class="job" x="{axis.x(begin)}%" width="{width:.2f}%"' in drawn
    assert drawn.count('class="maybe"') == 3
    assert ">3 h</text>" in drawn
    assert 'aria-label="&lt;3 h&gt;"' in drawn
    assert 'aria-hidden="true"' in axis.row([], "")
    late = axis.row([Bar(begin, berlin("2026-06-09T02:00"), "no")], "")
    assert f'width="{100 - axis.x(begin):.2f}%"' in late


def test_money_rises_under_its_cap_and_stays_where_nothing_more_runs() -> None:
    """The line goes on to the end of the window; the last sum is named."""
    axis = night("2026-06-01T21:14", "2026-06-01T22:00", "2026-06-02T07:00")
    points = [(berlin("2026-06-01T22:00"), 0.0), (berlin("2026-06-02T02:00"), 2.5)]

    drawn = axis.money(points, 5.0, "expected cost")

    assert "cap of the night $5" in drawn
    assert ">$2.50</text>" in drawn
    assert f"L{10 * axis.x(berlin('2026-06-02T07:00')):.1f} " in drawn
    assert "cap" not in axis.money(points, None, "expected cost")
