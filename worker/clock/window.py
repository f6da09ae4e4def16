"""Hours and days in a named time zone: when jobs may run, and which local day a moment belongs to.

A window is given as people write it, `22:00-07:00`; one that ends before it begins runs over
midnight and belongs to the day on which it begins. Its two edges are looked up in the time zone
for each date, so a night in which the clock changes is an hour shorter or longer:

- an edge that the clock skips (02:30 in spring) is the moment of the jump, so of a window that
  begins inside of it what is left is open;
- an edge that comes twice (02:30 in autumn) opens the window at the first, closes it at the second.

Knows no job and no policy.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Self

import tzlocal

from engine.contract.errors import ConfigError, ConfigProblem

EARLIEST = datetime.date(2020, 1, 1)
"""No lane ran before: an earlier day is a typing error."""
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_EVERY_DAY = frozenset(range(7))
_TIME = r"((?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?)"
_WINDOW = re.compile(rf"{_TIME}\s*[-–]\s*(?:{_TIME}|24:00)")
"""24:00 is the midnight behind a day; seconds may be left out."""
_WEEK = 9
"""Days from the one before, whose window may still be open, to this day of the next week."""
_FAR = 5 * _WEEK
"""The clock can skip the only hour of a week, but not five times in a row."""
_LAST_DAY = 253_370_764_800.0
"""9999-01-01: no calendar holds much more."""


class Span(NamedTuple):
    """From `opens` (included) to `closes` (excluded), Unix seconds."""

    opens: float
    closes: float


def zone_named(name: str | None) -> zoneinfo.ZoneInfo:
    """A time zone by its IANA name, `Europe/Berlin`; None = the machine's own.

    Raises ConfigError for a name that is no time zone.
    """
    try:
        found = tzlocal.get_localzone() if name is None else zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        problem = "is no time zone" if name else "the machine's own time zone cannot be told"
        remedy = "write a name like Europe/Berlin or UTC"
        raise ConfigError([ConfigProblem("zone", name, problem, remedy)]) from None
    assert isinstance(found, zoneinfo.ZoneInfo)
    return found


def local_day(moment: float, zone: zoneinfo.ZoneInfo) -> datetime.date:
    """The date that a clock in the zone shows, in the year 9999 at the latest."""
    return datetime.datetime.fromtimestamp(min(moment, _LAST_DAY), zone).date()


@lru_cache(maxsize=64)
def day_begins(day: datetime.date, zone: zoneinfo.ZoneInfo) -> float:
    """Unix seconds of the first moment of a local day; where midnight is skipped, of the jump."""
    return _moment(day, datetime.time(), zone, last=False)


def day_ends(day: datetime.date, zone: zoneinfo.ZoneInfo) -> float:
    """Unix seconds at which the next local day begins: 23, 24 or 25 hours behind its beginning."""
    return day_begins(day + datetime.timedelta(days=1), zone)


@dataclass(frozen=True)
class Window:
    """Hours of a day, and the weekdays on which they begin (0 = Monday)."""

    begins: datetime.time
    ends: datetime.time
    days: frozenset[int] = _EVERY_DAY

    @classmethod
    def parse(cls, hours: str | None, days: str | None = None) -> Self:
        """`22:00-07:00` and `mon-fri,sun`; without hours the whole day, without days every day.

        Raises ConfigError.
        """
        begins, ends = _hours(hours) if hours else (datetime.time(), datetime.time())
        return cls(begins, ends, _days(days) if days else _EVERY_DAY)

    @property
    def always(self) -> bool:
        """Whether it never closes."""
        return self.begins == self.ends and self.days == _EVERY_DAY

    def span_of(self, day: datetime.date, zone: zoneinfo.ZoneInfo) -> Span | None:
        """Where the window that begins on a date lies; None on a day without one."""
        if day.weekday() not in self.days:
            return None
        over_midnight = self.ends <= self.begins
        last_day = day + datetime.timedelta(days=1) if over_midnight else day
        opens = _moment(day, self.begins, zone, last=False)
        whole_day = self.begins == self.ends
        span = Span(opens, _moment(last_day, self.ends, zone, last=not whole_day))
        return span if span.closes > span.opens else None

    @property
    def over_midnight(self) -> bool:
        """Whether it begins on one date and ends within the next."""
        return datetime.time() < self.ends < self.begins

    def open_at(self, moment: float, zone: zoneinfo.ZoneInfo) -> Span | None:
        """The span that holds a moment; spans that touch are one. None while it is closed."""
        found: Span | None = None
        for span in self._spans(moment, zone, _WEEK):
            if found is not None and span.opens <= found.closes:
                found = Span(found.opens, max(found.closes, span.closes))
            elif span.opens <= moment < span.closes:
                found = span
        return found

    def next_opening(self, moment: float, zone: zoneinfo.ZoneInfo) -> float:
        """`moment` itself while it is open, else when it opens next."""
        if self.open_at(moment, zone):
            return moment
        spans = self._spans(moment, zone, _FAR)
        return next((span.opens for span in spans if span.opens > moment), moment + _FAR * 86400.0)

    def _spans(self, moment: float, zone: zoneinfo.ZoneInfo, days: int) -> Iterator[Span]:
        """The spans around a moment and those of so many days behind it, in their order."""
        first = local_day(moment, zone) - datetime.timedelta(days=1)
        for offset in range(days):
            span = self.span_of(first + datetime.timedelta(days=offset), zone)
            if span is not None:
                yield span


class CapDays(NamedTuple):
    """The days that caps are counted in: local days, but a night is not cut in two.

    A window over midnight belongs whole to the day on which it opened: its cap is one.
    """

    zone: zoneinfo.ZoneInfo
    hours: Window = Window(datetime.time(), datetime.time())

    def day_of(self, moment: float) -> datetime.date:
        """The day that a moment counts for."""
        today = local_day(moment, self.zone)
        before = today - datetime.timedelta(days=1)
        return before if moment < self.ends(before) else today

    def begins(self, day: datetime.date) -> float:
        """Unix seconds: where the day before ends."""
        return self.ends(day - datetime.timedelta(days=1))

    def ends(self, day: datetime.date) -> float:
        """Unix seconds: midnight, or when the window of that night closes."""
        midnight = day_ends(day, self.zone)
        if not self.hours.over_midnight:
            return midnight
        night = self.hours.span_of(day, self.zone)
        return midnight if night is None else max(midnight, night.closes)


@lru_cache(maxsize=512)  # a preview asks for the edges of the same few days again and again
def _moment(day: datetime.date, at: datetime.time, zone: zoneinfo.ZoneInfo, *, last: bool) -> float:
    """A wall-clock time as Unix seconds; `last` takes the second of two."""
    local = datetime.datetime.combine(day, at, zone)
    first, second = (local.replace(fold=fold).timestamp() for fold in (0, 1))
    if second < first:  # skipped: fold 0 counts by the offset before the jump
        return _jump(second, first, zone)
    return second if last else first


def _jump(low: float, high: float, zone: zoneinfo.ZoneInfo) -> float:
    """The second at which the zone's offset changes between two moments."""
    before = datetime.datetime.fromtimestamp(low, zone).utcoffset()
    left, right = int(low), int(high)
    while right - left > 1:
        middle = (left + right) // 2
        if datetime.datetime.fromtimestamp(middle, zone).utcoffset() == before:
            left = middle
        else:
            right = middle
    return float(right)


def _hours(text: str) -> tuple[datetime.time, datetime.time]:
    match = _WINDOW.fullmatch(text.strip())
    if match is None:
        remedy = "write it like 22:00-07:00"
        raise ConfigError([ConfigProblem("window", text, "is no window", remedy)])
    begins, ends = (_time(text or "0:00") for text in match.groups())
    if begins == ends and begins != datetime.time():
        problem = "begins when it ends"
        remedy = "leave the window out for the whole day"
        raise ConfigError([ConfigProblem("window", text, problem, remedy)])
    return begins, ends


def _time(text: str) -> datetime.time:
    hour, _, rest = text.partition(":")
    return datetime.time.fromisoformat(f"{hour:>02}:{rest}")


def _days(text: str) -> frozenset[int]:
    """`mon-fri,sun`; a range may run over the end of the week: `fri-mon`."""
    found: set[int] = set()
    for part in text.lower().replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if first not in DAYS or last not in DAYS:
            remedy = f"write {', '.join(DAYS)}, or a range like mon-fri"
            raise ConfigError([ConfigProblem("days", text, "are no days of the week", remedy)])
        begin, end = DAYS.index(first), DAYS.index(last)
        found |= {(begin + step) % 7 for step in range((end - begin) % 7 + 1)}
    return frozenset(found)
