"""One night's terms: safe by default, and over when the window closes."""

from __future__ import annotations

from typing import Any

import pytest

from engine.contract.errors import ConfigError
from tests.worker.lane_rows import NOON, berlin
from worker.schedule.one_night import last_terms, one_night
from worker.schedule.policy import Policy

pytestmark = pytest.mark.requirement("UI-04")
BERLIN = {"zone": "Europe/Berlin"}


def test_one_night_has_a_window_a_cap_and_an_end_without_being_asked() -> None:
    """At noon: tonight from ten to seven, five dollars, three failures, then it is over."""
    found = one_night(BERLIN, NOON)

    assert (found.window, found.cap_usd, found.max_failures) == ("22:00-07:00", 5.0, 3)
    assert found.expires_at == berlin("2026-06-02T07:00")


def test_armed_after_midnight_it_is_the_night_that_is_on() -> None:
    """Not the one after it."""
    found = one_night(BERLIN, berlin("2026-06-02T01:30"))

    assert found.expires_at == berlin("2026-06-02T07:00")


@pytest.mark.parametrize(
    ("evening", "hours"), [("2026-03-28T12:00", 8), ("2026-10-24T12:00", 10), (None, 9)]
)
def test_a_night_in_which_the_clock_changes_ends_by_the_clock(
    evening: str | None, hours: int
) -> None:
    """At seven, an hour sooner or later than in other nights."""
    found = one_night(BERLIN, NOON if evening is None else berlin(evening))

    assert found.expires_at is not None
    opens = found.opens_at(NOON if evening is None else berlin(evening))
    assert found.expires_at - opens == hours * 3600


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"opens": "25:00"}, "opens"),
        ({"closes": "at dawn"}, "closes"),
        ({"opens": "7:00", "closes": "07:00"}, "closes"),
        ({"cap_usd": -1}, "cap_usd"),
        ({"cap_usd": None}, "cap_usd"),
        ({"max_failures": 0}, "max_failures"),
        ({"zone": "Mars/Base"}, "zone"),
        ({"days": "mon"}, "days"),
    ],
)
def test_a_wrong_term_is_refused_at_the_field_it_was_written_into(
    wrong: dict[str, Any], field: str
) -> None:
    """A night without a cap is none of these."""
    with pytest.raises(ConfigError) as refused:
        one_night(BERLIN | wrong, NOON)

    assert [problem.field for problem in refused.value.problems] == [field]


def test_all_that_is_wrong_is_told_at_once() -> None:
    """A window and a cap."""
    with pytest.raises(ConfigError) as refused:
        one_night(BERLIN | {"opens": "late", "cap_usd": -1}, NOON)

    assert {problem.field for problem in refused.value.problems} == {"opens", "cap_usd"}


def test_the_terms_of_before_are_offered_again_where_they_say_something_of_one_night() -> None:
    """Hours, money and failures; without any, the safe ones."""
    before = Policy(window="21:30-06:00", cap_usd=8.0, days="mon-fri", zone="UTC").model_dump()

    found = last_terms(before)

    assert (found.opens, found.closes, found.cap_usd) == ("21:30", "06:00", 8.0)
    assert (found.max_failures, found.zone) == (3, "UTC")
    assert last_terms(None).cap_usd == 5.0
