"""Numbers and moments in the words people read: the same on every page and on the command line.

Each function takes None for "not known yet" and answers with a dash. Moments are told in the zone
that a request or a command set before it said anything, else in the machine's. Knows no job.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from worker import amounts
from worker.estimate.time_left import LONGEST_S

UNKNOWN = "–"
BEYOND = "in no calendar"
"""A moment that no date can tell."""

_NO_DATE = (ValueError, OverflowError, OSError)
"""What the calendar raises for a moment that it does not hold."""

Zone = Callable[[], datetime.tzinfo | None]
"""Says in which zone; None: the machine's."""
_ZONE: ContextVar[Zone] = ContextVar("told_in", default=lambda: None)


def percent(share: float | None) -> str:
    """A share of one, to a tenth.

    >>> percent(0.5526)
    '55.3 %'
    """
    return UNKNOWN if share is None else f"{_fixed(share * 100, 1)} %"


def points(difference: float | None) -> str:
    """A difference of two shares, signed.

    >>> points(-0.021), points(0.0004), points(1e20)
    ('−2.1 points', '+0.04 points', '+1e+22 points')
    """
    if difference is None:
        return UNKNOWN
    digits = _digits(difference)
    value = round(difference * 100, digits)
    sign = "+" if value > 0 else "−" if value < 0 else "±"
    return f"{sign}{_fixed(abs(value), digits)} points"


def rows(n: int | None, different: int | None = None) -> str:
    """How many rows, and how many different questions among them where some come back.

    >>> rows(45, 37), rows(45, 45), rows(1), rows(None)
    ('45 rows, 37 different', '45 rows', '1 row', '–')
    """
    if n is None:
        return UNKNOWN
    told = "1 row" if n == 1 else f"{n} rows"
    return told if different is None or different >= n else f"{told}, {different} different"


def no_numbers(lost: int) -> str:
    """After what is drawn: how many values were measured that are no numbers.

    >>> no_numbers(0), no_numbers(1), no_numbers(4)
    ('', '; 1 is not a number', '; 4 are not numbers')
    """
    return f"; {lost} {'is not a number' if lost == 1 else 'are not numbers'}" if lost else ""


def interval(low: float | None, high: float | None) -> str:
    """The two ends of a 95 % interval of a difference.

    >>> interval(0.21, 0.3), interval(0.0001, 0.0007)
    ('+21.0 to +30.0', '+0.01 to +0.07')
    """
    if low is None or high is None:
        return UNKNOWN
    digits = _digits(low, high)
    ends = (f"{'+' if end >= 0 else ''}{_fixed(end * 100, digits)}" for end in (low, high))
    return " to ".join(ends).replace("-", "−")


def _fixed(value: float, digits: int) -> str:
    """With so many digits behind the point; short also where nobody would count those before it."""
    return f"{value:.{digits}f}" if abs(value) < 1e12 else f"{value:.4g}"


def _digits(*differences: float) -> int:
    """Of a point: a tenth, unless little or nothing of a difference would be left to see."""
    return 2 if any(0.00005 <= abs(difference) < 0.001 for difference in differences) else 1


def duration(seconds: float | None) -> str:
    """The two largest units, up to ten years.

    >>> [duration(s) for s in (0.4, 42, 125, 7300, 200_000, 1e99)]
    ['0.4 s', '42 s', '2 min 5 s', '2 h 1 min', '2 d 7 h', 'more than 10 years']
    """
    if seconds is None:
        return UNKNOWN
    if seconds >= LONGEST_S:
        return "more than 10 years"
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    for size, name, below, below_name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // below
            return (
                f"{whole // size} {name} {rest} {below_name}" if rest else f"{whole // size} {name}"
            )
    return f"{whole} s"


def time_left(seconds: float | None) -> str:
    """What an engine expects to need yet; from a minute on in minutes, for it is a guess.

    >>> [time_left(s) for s in (351, 42, -125)]
    ['about 6 min left', 'about 42 s left', 'overdue by 2 min']
    """
    if seconds is None:
        return UNKNOWN
    apart = abs(seconds)
    told = duration(round(apart / 60) * 60 if apart >= 60 else round(apart))
    return f"about {told} left" if seconds >= 0 else f"overdue by {told}"


def tell_times_in(zone: Zone) -> None:
    """Tell moments in this zone for the rest of this request; asked when the first one is told."""
    _ZONE.set(cache(zone))


@contextmanager
def times_in(zone: datetime.tzinfo | None) -> Iterator[None]:
    """Tell moments in this zone inside of the block."""
    before = _ZONE.set(lambda: zone)
    try:
        yield
    finally:
        _ZONE.reset(before)


def told_in() -> datetime.tzinfo | None:
    """The zone that was set; None: the machine's."""
    return _ZONE.get()()


def today() -> datetime.date:
    """The day that a clock in the zone shows."""
    return _local(time.time()).date()


def zone(moment: float | None) -> str:
    """How the zone is called at this moment: `UTC`, `CET`, `-03`."""
    return _told(moment, "%Z")


def clock(moment: float | None) -> str:
    """Local time of day, with the date unless it is today."""
    return _told(moment, lambda at: "%H:%M:%S" if at.date() == today() else "%Y-%m-%d %H:%M")


def hour(moment: float | None) -> str:
    """Local time of day to the minute, whatever the day: inside of one night."""
    return _told(moment, "%H:%M")


def weekday(moment: float | None) -> str:
    """The day in a word: `Fri 27`."""
    return _told(moment, "%a %-d")


def minute(moment: float | None) -> str:
    """Local day and minute, whatever today is: for the two ends of a stretch of time."""
    return _told(moment, "%Y-%m-%d %H:%M")


def when(moment: float | None) -> str:
    """Local day and minute, short enough for a table: `14:05` today, else `Nov 19, 14:05`."""
    return _told(moment, _short)


def _short(at: datetime.datetime) -> str:
    now = today()
    if at.date() == now:
        return "%H:%M"
    return "%b %-d, %H:%M" if at.year == now.year else "%b %-d, %Y"


def _told(moment: float | None, form: str | Callable[[datetime.datetime], str]) -> str:
    """A moment in a form of `strftime`, or in the one that fits it."""
    if moment is None:
        return UNKNOWN
    try:
        local = _local(moment)
    except _NO_DATE:
        return BEYOND
    return local.strftime(form if isinstance(form, str) else form(local))


def _local(moment: float) -> datetime.datetime:
    found = datetime.datetime.fromtimestamp(moment, told_in())
    return found if found.tzinfo else found.astimezone()


def iso(moment: float | None) -> str:
    """For machines: ISO 8601 in UTC, to the millisecond; empty where there is no such date."""
    if moment is None:
        return ""
    try:
        found = datetime.datetime.fromtimestamp(moment, datetime.UTC)
    except _NO_DATE:
        return ""
    return found.isoformat(timespec="milliseconds")


def number(value: float | None) -> str:
    """Four significant digits, without an exponent where a person would not write one.

    >>> [number(v) for v in (3.0, 0.12345, 1234567, 1e-6, 1e29)]
    ['3', '0.1235', '1234567', '1e-06', '1e+29']
    """
    if value is None:
        return UNKNOWN
    if value == int(value) and abs(value) < 1e12:
        return str(int(value))
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"


def signed(value: float | None) -> str:
    """A number whose sign counts, to two digits behind the point.

    >>> signed(0.771), signed(-1.2)
    ('+0.77', '−1.20')
    """
    return UNKNOWN if value is None else f"{value:+.2f}".replace("-", "−")


def gigabytes(value: float | None) -> str:
    """Memory, in GB as the engine counts them.

    >>> gigabytes(9.04), gigabytes(1e299)
    ('9.0 GB', '1e+299 GB')
    """
    return UNKNOWN if value is None else f"{_fixed(value, 1)} GB"


def disk(size: int | None) -> str:
    """Bytes on a disk, in the largest unit of which there is one.

    >>> disk(48_600_000_000), disk(3_000_000), disk(120)
    ('48.6 GB', '3.0 MB', '0.1 kB')
    """
    if size is None:
        return UNKNOWN
    for unit, least in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return f"{size / 1e3:.1f} kB"


def money(usd: float | None) -> str:
    """US dollars, with cents where there are some below a hundred.

    >>> [money(v) for v in (0.5, 12, 1234.5)]
    ['$0.50', '$12', '$1234']
    """
    if usd is None:
        return UNKNOWN
    return f"${_fixed(usd, 0 if usd >= 100 or usd == int(usd) else 2)}"


def dollars(usd: float | None) -> str:
    """US dollars that somebody set, in every digit of theirs."""
    return UNKNOWN if usd is None else amounts.dollars(usd)


def exact(amount: float | None) -> str:
    """A number that somebody set, in every digit of theirs."""
    return UNKNOWN if amount is None else amounts.exact(amount)


def sentence(text: str | None) -> str:
    """A reason as a sentence of its own, among others.

    >>> sentence("3 runs failed in a row; look at them"), sentence("the lane is busy.")
    ('3 runs failed in a row; look at them.', 'The lane is busy.')
    """
    if not text:
        return ""
    whole = text[:1].upper() + text[1:]
    return whole if whole.endswith((".", "?", "!")) else f"{whole}."


def setting(value: Any) -> str:
    """A value of a config as its YAML would show it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


FILTERS: Mapping[str, Callable[..., str]] = {
    function.__name__: function
    for function in (
        percent,
        points,
        rows,
        interval,
        duration,
        time_left,
        clock,
        hour,
        minute,
        when,
        zone,
        iso,
        number,
        signed,
        gigabytes,
        disk,
        money,
        dollars,
        exact,
        sentence,
        setting,
    )
}
