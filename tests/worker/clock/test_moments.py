"""Start times as people write them, and the two nights in which clocks change."""

from __future__ import annotations

import datetime
import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract.errors import ConfigError
from worker.clock.moments import start_time
from worker.clock.window import zone_named

NOW = 1_774_000_000.0  # 2026-03-20T09:46:40Z
pytestmark = pytest.mark.requirement("JB-05")


def utc(text: str) -> float:
    return datetime.datetime.fromisoformat(text + "+00:00").timestamp()


def nobodys() -> datetime.tzinfo:
    """Of a time that says its zone itself, nobody asks for another."""
    raise AssertionError


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("+90s", NOW + 90),
        ("+2h", NOW + 7200),
        ("+ 1.5d", NOW + 129_600),
        ("1774000060", NOW + 60),
        ("2026-03-28T22:00+01:00", utc("2026-03-28T21:00")),
        ("2026-03-28T22:00Z", utc("2026-03-28T22:00")),
        ("2026-03-28 22:00 Europe/Berlin", utc("2026-03-28T21:00")),
        ("2026-03-28 22:00 UTC", utc("2026-03-28T22:00")),
        ("2026-07-01 America/New_York", utc("2026-07-01T04:00")),
        # In spring 02:30 does not exist in Berlin: the later reading is 03:30 of summer time.
        ("2026-03-29 02:30 Europe/Berlin", utc("2026-03-29T01:30")),
        ("2026-03-29 01:59 Europe/Berlin", utc("2026-03-29T00:59")),
        ("2026-03-29 03:00 Europe/Berlin", utc("2026-03-29T01:00")),
        # In autumn it comes twice: the later one is meant.
        ("2026-10-25 02:30 Europe/Berlin", utc("2026-10-25T01:30")),
        ("2026-10-25 01:59 Europe/Berlin", utc("2026-10-24T23:59")),
        ("2026-10-25 03:00 Europe/Berlin", utc("2026-10-25T02:00")),
    ],
)
def test_a_start_time_is_read_as_it_was_meant(text: str, moment: float) -> None:
    """Relative, absolute, with an offset or in a named zone, in nights of a clock change too."""
    assert start_time(text, NOW, nobodys) == moment


def test_a_time_without_a_zone_is_the_lanes() -> None:
    """With the same rule in the nights of a clock change."""
    berlin = functools.partial(zone_named, "Europe/Berlin")
    assert start_time("2026-03-29 02:30", NOW, berlin) == utc("2026-03-29T01:30")
    assert start_time("2026-10-25 02:30", NOW, berlin) == utc("2026-10-25T01:30")
    assert start_time("2026-07-01 02:30", NOW, berlin) == utc("2026-07-01T00:30")
    assert start_time("2026-07-01 02:30 UTC", NOW, berlin) == utc("2026-07-01T02:30")


def test_numbers_are_unix_seconds_and_nothing_is_no_start_time() -> None:
    """As programs send them."""
    assert start_time(NOW + 5, NOW, nobodys) == NOW + 5
    assert start_time(None, NOW, nobodys) is None


@pytest.mark.parametrize(
    ("given_time", "words"),
    [
        (NOW - 90, "is 90 s in the past"),
        (NOW - 900, "is 15 min in the past"),
        (NOW - 23472, "is 6.5 h in the past"),
        (NOW - 3 * 86400, "is 3 d in the past"),
        ("2020-01-01", "is long past"),
        (-1e300, "is long past"),
        (NOW * 1000, "is too far away"),
        (1e300, "is too far away"),
        ("+999999999d", "is too far away"),
        ("soon", "is no time"),
        ("", "is no time"),
        ("2026-13-01", "is no time"),
        ("2026-03-28T22:00+01:00 Europe/Berlin", "is no time"),
        ("2026-03-28 22:00 Europe/Berlim", "is no time zone"),
        ("2026-03-28 22:00 ../etc", "is no time"),
    ],
)
def test_what_is_no_time_past_or_absurd_is_refused_by_name(
    given_time: float | str, words: str
) -> None:
    """The line names the field and what to write."""
    with pytest.raises(ConfigError, match=f"not_before: {words}"):
        start_time(given_time, NOW, lambda: datetime.UTC)


@given(st.text(max_size=40) | st.text("0123456789-+:TZ. hdms/ABe", max_size=30))
def test_no_text_breaks_the_reader(text: str) -> None:
    """A moment that has not come, or one line that explains."""
    try:
        found = start_time(text, NOW, lambda: datetime.UTC)
    except ConfigError:
        return
    assert found is not None
    assert found >= NOW
