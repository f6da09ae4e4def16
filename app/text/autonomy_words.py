"""Autonomy in plain words: a policy's hours, and the numbers that a decision compared.

Knows no page and no database.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any

from app.text import wording
from worker.clock.window import DAYS
from worker.schedule.policy import Policy

_NAMES = dict(
    zip(
        DAYS,
        ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
        strict=True,
    )
)


def hours_in_words(terms: Policy) -> str:
    """When jobs may run, as one would say it.

    >>> hours_in_words(Policy(window="22:00-07:00", days="mon-fri", zone="UTC"))
    'from 22:00 to 07:00 the next morning, Monday to Friday (UTC)'
    """
    rule = terms.hours()
    if rule.always:
        return f"at every hour of every day ({terms.zone})"
    if rule.begins == rule.ends:
        hours = "all day"
    else:
        over = " the next morning" if rule.ends <= rule.begins else ""
        hours = f"from {_clock(rule.begins)} to {_clock(rule.ends)}{over}"
    return f"{hours}, {_days(rule.days)} ({terms.zone})"


def now_in_words(terms: Policy, now: float) -> str:
    """Whether the window is open, and when that changes."""
    opens = terms.opens_at(now)
    if opens > now:
        return f"closed now, opens at {wording.when(opens)}"
    closes = terms.closes_at(now)
    return "open now" if closes is None else f"open now, closes at {wording.when(closes)}"


def numbers_in_words(numbers: Mapping[str, Any]) -> str:
    """What a rule compared, in one line.

    >>> numbers_in_words({"need_gb": 3.25, "until": None, "cap_usd": 5.0})
    'need 3.2 GB · cap $5.00'
    """
    return " · ".join(
        _number(name, value)
        for name, value in numbers.items()
        if value is not None and not isinstance(value, Mapping | list)
    )


def _number(name: str, value: Any) -> str:
    words = name.replace("_", " ")
    if not isinstance(value, int | float) or isinstance(value, bool):
        return f"{words} {wording.setting(value)}"
    stem, _, unit = words.rpartition(" ")
    if unit in _UNITS and stem:
        return f"{stem} {_UNITS[unit](value)}"
    moment = name == "until" or (unit == "at" and value > 1e9)
    return f"{words} {wording.clock(value) if moment else wording.number(value)}"


_UNITS: Mapping[str, Callable[[float], str]] = {
    "usd": lambda value: f"${value:.2f}",
    "gb": wording.gigabytes,
    "s": wording.duration,
    "hours": lambda value: f"{value:.2f} h",
}


def _clock(time: datetime.time) -> str:
    return time.isoformat("seconds" if time.second else "minutes")


def _days(found: frozenset[int]) -> str:
    if len(found) == len(DAYS):
        return "every day"
    ordered = sorted(found)
    if len(ordered) > 2 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{_NAMES[DAYS[ordered[0]]]} to {_NAMES[DAYS[ordered[-1]]]}"
    names = [_NAMES[DAYS[day]] for day in ordered]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
