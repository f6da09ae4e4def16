"""Start times as people and programs write them → Unix seconds.

    +90m · 1795298400 · 2030-11-22T22:00+01:00 · 2030-11-22 22:00 · 2030-11-22 22:00 Europe/Berlin

Without offset and zone the lane's is meant, in which pages tell their times. A local time that a
change of clocks makes ambiguous, or leaves out, means the later of its two readings: "not before"
then holds for both. Knows no job.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Callable

from engine.contract.errors import ConfigError, ConfigProblem

FURTHEST_DAYS = 3660
"""A start time further away than ten years is a typing error, or counted in milliseconds."""

_RELATIVE = re.compile(r"\+\s*(\d{1,9}(?:\.\d{1,6})?)\s*(s|m|min|h|d)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_WITH_ZONE = re.compile(r"(\S+(?: \S+)?) ([A-Za-z]\w*(?:[/+-]\w+)*)")
_REMEDY = "write 2030-11-22T22:00+01:00, '2030-11-22 22:00 Europe/Berlin', Unix seconds, or +2h"


def start_time(
    given: float | str | None,
    now: float,
    zone: Callable[[], datetime.tzinfo],
    *,
    if_past: str = "leave it out to start at once",
) -> float | None:
    """Unix seconds of a `not_before`. Raises ConfigError when it is no time, past or absurd.

    `zone` is asked only for a time that names neither zone nor offset; `if_past` is the remedy for
    one that is over.

    >>> start_time("+2h", now=1000.0, zone=lambda: datetime.UTC)
    8200.0
    """
    if given is None:
        return None
    found = _of_text(given.strip(), now, zone) if isinstance(given, str) else float(given)
    if found is None:
        raise _problem(given, "is no time", _REMEDY)
    if found < now:
        raise _problem(given, _past(now - found), if_past)
    if found > now + FURTHEST_DAYS * 86400:
        remedy = "give a time within ten years, in seconds"
        raise _problem(given, "is too far away", remedy)
    return found


def _of_text(text: str, now: float, local: Callable[[], datetime.tzinfo]) -> float | None:
    if relative := _RELATIVE.fullmatch(text):
        return now + float(relative[1]) * _SECONDS[relative[2]]
    if re.fullmatch(r"-?\d{1,15}(\.\d{1,9})?", text) and len(text) > 8:
        return float(text)
    zone: datetime.tzinfo | None = None
    if named := _WITH_ZONE.fullmatch(text):
        text, zone = named[1], _zone(named[2])
    try:
        moment = datetime.datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return None if zone else moment.timestamp()
        zone = zone or local()
        return max(moment.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
    except (ValueError, OverflowError):
        return None


def _past(seconds: float) -> str:
    """How far back, as a person would say it."""
    if seconds < 2 * 60:
        return f"is {seconds:.0f} s in the past"
    if seconds < 2 * 3600:
        return f"is {seconds / 60:.0f} min in the past"
    if seconds < 2 * 86400:
        return f"is {seconds / 3600:.1f} h in the past"
    return f"is {seconds / 86400:.0f} d in the past" if seconds < 1e7 else "is long past"


def _zone(name: str) -> datetime.tzinfo:
    if name in {"UTC", "Z"}:
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise _problem(name, "is no time zone", "write one like Europe/Berlin or UTC") from None


def _problem(value: float | str, problem: str, remedy: str) -> ConfigError:
    shown = value if not isinstance(value, str) or len(value) <= 80 else value[:77] + "…"
    return ConfigError([ConfigProblem("not_before", str(shown), problem, remedy)])
