"""Windows and local days: across midnight, and in the nights in which the clock changes."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract.errors import ConfigError
from worker.clock.window import (
    CapDays,
    Window,
    day_begins,
    day_ends,
    local_day,
    zone_named,
)

BERLIN = zone_named("Europe/Berlin")
HOUR = 3600.0
SPRING, AUTUMN, SUMMER = (datetime.date(2026, *day) for day in ((3, 29), (10, 25), (6, 1)))


def at(text: str) -> float:
    """A wall-clock time in Berlin."""
    return datetime.datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()


@pytest.mark.requirement("LN-01")
@pytest.mark.parametrize(
    ("moment", "is_open"),
    [
        ("2026-06-01T21:59:59", False),
        ("2026-06-01T22:00", True),
        ("2026-06-02T00:00", True),
        ("2026-06-02T06:59:59", True),
        ("2026-06-02T07:00", False),
    ],
)
def test_a_window_over_midnight_is_open_on_both_sides_of_it(moment: str, is_open: bool) -> None:
    """Its end is the next morning's; the closing minute does not belong to it."""
    found = Window.parse("22:00-07:00").open_at(at(moment), BERLIN)

    assert (found is not None) is is_open


def test_the_days_of_a_window_are_those_on_which_it_begins() -> None:
    """Friday's night reaches into Saturday; Saturday has none of its own."""
    window = Window.parse("22:00-07:00", "fri")

    assert window.open_at(at("2026-06-06T03:00"), BERLIN)  # Saturday
    assert not window.open_at(at("2026-06-06T23:00"), BERLIN)
    assert window.next_opening(at("2026-06-06T23:00"), BERLIN) == at("2026-06-12T22:00")


@pytest.mark.parametrize("days_before", range(8))
def test_a_weekly_hour_that_the_clock_skips_opens_the_week_after(days_before: int) -> None:
    """02:00 to 03:00 of a Sunday is not there in the night in which summer time begins."""
    noon = at("2026-03-29T12:00") - days_before * 24 * HOUR

    opens = Window.parse("02:00-03:00", "sun").next_opening(noon, BERLIN)

    earlier = at("2026-03-22T02:00")
    assert opens == (earlier if noon < earlier else at("2026-04-05T02:00"))


def test_a_moment_beyond_every_calendar_is_of_the_last_day() -> None:
    """Whoever counts far enough ahead gets an answer."""
    assert local_day(1e18, BERLIN) == datetime.date(9999, 1, 1)
    assert Window.parse("02:00-03:00", "sun").next_opening(1e18, BERLIN) > 1e18


@pytest.mark.parametrize(("day", "hours"), [(SPRING, 8), (AUTUMN, 10), (SUMMER, 9)])
def test_a_night_in_which_the_clock_changes_is_shorter_or_longer(
    day: datetime.date, hours: int
) -> None:
    """22:00 to 07:00 by the clock on the wall."""
    span = Window.parse("22:00-07:00").span_of(day - datetime.timedelta(days=1), BERLIN)

    assert span is not None
    assert (span.closes - span.opens) / HOUR == hours


@pytest.mark.parametrize(
    ("hours", "opens", "closes"),
    [
        ("02:30-05:00", "03:00", "05:00"),
        ("02:30-03:15", "03:00", "03:15"),
        ("01:00-02:30", "01:00", "03:00"),
        ("23:00-02:59", "23:00", "03:00"),
    ],
)
def test_an_edge_that_the_clock_skips_is_the_jump(hours: str, opens: str, closes: str) -> None:
    """From 02:00 on it is 03:00 on that morning: of a window what is left of it is open."""
    day = SPRING if opens < "22:00" else SPRING - datetime.timedelta(days=1)
    span = Window.parse(hours).span_of(day, BERLIN)

    assert span is not None
    assert span.opens == at(f"{day}T{opens}")
    assert span.closes == at(f"{SPRING}T{closes}")


def test_a_window_that_the_clock_skips_whole_opens_on_the_next_day() -> None:
    """Nothing of it is left; other zones skip other hours, and some of them midnight."""
    assert Window.parse("02:10-02:50").span_of(SPRING, BERLIN) is None
    opening = Window.parse("02:10-02:50").next_opening(at("2026-03-29T00:00"), BERLIN)
    assert opening == at("2026-03-30T02:10")
    havana = zone_named("America/Havana")  # 00:00 is 01:00 on 2026-03-08
    left = Window.parse("00:30-01:15").span_of(datetime.date(2026, 3, 8), havana)
    assert left is not None
    assert left.closes - left.opens == 15 * 60


@pytest.mark.requirement("LN-05")
def test_a_night_over_midnight_is_one_day_of_its_cap() -> None:
    """It counts for the day on which it opened, and between two nights the date does."""
    days = CapDays(BERLIN, Window.parse("22:00-07:00"))
    noon = datetime.date(2026, 6, 2)

    told = {
        text: days.day_of(at(f"2026-06-{text}"))
        for text in ("01T22:00", "01T23:59", "02T00:00", "02T06:59", "02T07:00", "02T21:59")
    }

    before = datetime.date(2026, 6, 1)
    assert told == {
        "01T22:00": before,
        "01T23:59": before,
        "02T00:00": before,
        "02T06:59": before,
        "02T07:00": noon,
        "02T21:59": noon,
    }
    assert days.begins(noon) == at("2026-06-02T07:00")
    assert days.ends(noon) == at("2026-06-03T07:00")


@given(
    moment=st.floats(at("2026-01-01T00:00"), at("2026-12-30T00:00")),
    hours=st.sampled_from(["22:00-07:00", "20:00-19:59", "23:59-00:01", "02:30-02:00", None]),
    days=st.sampled_from([None, "mon-fri", "sun", "sat,mon"]),
    zone=st.sampled_from(["Europe/Berlin", "America/Havana", "Pacific/Apia", "UTC"]),
)
def test_every_moment_lies_in_the_day_it_counts_for(
    moment: float, hours: str | None, days: str | None, zone: str
) -> None:
    """Days follow one another without a gap, whatever the clock does."""
    counted = CapDays(zone_named(zone), Window.parse(hours, days))

    day = counted.day_of(moment)

    assert counted.begins(day) <= moment < counted.ends(day)
    assert counted.ends(day) == counted.begins(day + datetime.timedelta(days=1))


def test_an_edge_that_comes_twice_opens_early_and_closes_late() -> None:
    """The hour that is lived twice belongs to the window both times."""
    opens = Window.parse("02:30-05:00").span_of(AUTUMN, BERLIN)
    closes = Window.parse("01:00-02:30").span_of(AUTUMN, BERLIN)

    assert opens is not None
    assert closes is not None
    assert (opens.closes - opens.opens) / HOUR == 3.5
    assert (closes.closes - closes.opens) / HOUR == 2.5


def test_windows_that_touch_are_one() -> None:
    """A whole-day window on two days in a row never closes at the midnight between them."""
    window = Window.parse("00:00-24:00", "mon,tue")

    span = window.open_at(at("2026-06-01T12:00"), BERLIN)  # Monday

    assert span == (at("2026-06-01T00:00"), at("2026-06-03T00:00"))


@given(
    hour=st.integers(0, 23),
    length=st.integers(1, 23),
    zone=st.sampled_from(["Europe/Berlin", "America/New_York", "Africa/Cairo", "Asia/Kolkata"]),
    moment=st.floats(1.7e9, 1.9e9),
)
def test_the_next_opening_is_open_and_nothing_before_it_is(
    hour: int, length: int, zone: str, moment: float
) -> None:
    """For any window, zone and moment, clock changes included."""
    where = zone_named(zone)
    window = Window.parse(f"{hour:02d}:00-{(hour + length) % 24:02d}:00")

    opens = window.next_opening(moment, where)

    assert opens >= moment
    assert window.open_at(opens, where)
    if opens > moment:
        assert not window.open_at((moment + opens) / 2, where)
        assert not window.open_at(opens - 0.01, where)


@given(
    zone=st.sampled_from(
        ["Europe/Berlin", "America/Havana", "Africa/Cairo", "America/Asuncion", "Pacific/Apia"]
    ),
    moment=st.floats(1.3e9, 1.9e9),
)
def test_local_days_follow_each_other_without_gap_or_overlap(zone: str, moment: float) -> None:
    """Also where midnight itself is skipped, or comes twice."""
    where = zone_named(zone)
    day = local_day(moment, where)

    assert day_begins(day, where) <= moment < day_ends(day, where)
    assert local_day(day_begins(day, where), where) == day


@pytest.mark.parametrize(
    ("hours", "days", "field"),
    [
        ("22-7", None, "window"),
        ("25:00-07:00", None, "window"),
        ("22:60-07:00", None, "window"),
        ("08:00-08:00", None, "window"),
        ("", "someday", "days"),
        ("22:00-07:00", "mon-", "days"),
        ("22:00-07:00", "mon,,tue", "days"),
    ],
)
def test_what_is_no_window_is_refused_in_one_line(hours: str, days: str | None, field: str) -> None:
    """Field, value and remedy."""
    with pytest.raises(ConfigError) as refused:
        Window.parse(hours, days)

    assert str(refused.value).startswith(f"{field}: ")
    assert "\n" not in str(refused.value)


def test_an_unknown_time_zone_is_refused_in_one_line() -> None:
    """It names the value and shows how a zone is written."""
    with pytest.raises(ConfigError, match=r"^zone: is no time zone \(got 'Mars/One'\); write a"):
        zone_named("Mars/One")
