"""The night (reporting period): from noon to noon, local time, named by the day of its morning.

A window that runs over midnight lies inside one night, and the money of two local days may lie in
it. Noon exists on every day in every time zone. Knows no job.
"""

from __future__ import annotations

import datetime
import zoneinfo
from typing import NamedTuple

from worker.clock.window import local_day

_NOON = datetime.time(12)


class Night(NamedTuple):
    """From `begin` (included) to `end` (excluded), Unix seconds."""

    day: datetime.date
    """Of its morning."""
    begin: float
    end: float

    def over(self, now: float) -> bool:
        """Whether nothing can be added to it."""
        return now >= self.end


def night_of(day: datetime.date, zone: zoneinfo.ZoneInfo) -> Night:
    """The night before a morning."""
    before = day - datetime.timedelta(days=1)
    return Night(day, _noon(before, zone), _noon(day, zone))


def night_at(moment: float, zone: zoneinfo.ZoneInfo) -> Night:
    """The night that a moment lies in."""
    night = night_of(local_day(moment, zone), zone)
    if moment < night.end:
        return night
    return night_of(night.day + datetime.timedelta(days=1), zone)


def _noon(day: datetime.date, zone: zoneinfo.ZoneInfo) -> float:
    return datetime.datetime.combine(day, _NOON, zone).timestamp()
