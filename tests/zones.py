"""A time zone for tests that count days or nights: whenever they run, no border is near."""

from __future__ import annotations

import datetime


def zone_where_it_is(hour: int) -> str:
    """A zone in which it is `hour` o'clock, and up to an hour more."""
    ahead = (hour - datetime.datetime.now(datetime.UTC).hour + 11) % 24 - 11
    return f"Etc/GMT{-ahead:+d}"  # these names count westwards
