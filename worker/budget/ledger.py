"""The ledger (metering): money and lane time of each local day, in rows that are only appended.

    reserve   what an attempt is expected to use; held while it runs, never spent
    meter     what it used since the row before it
    settle    the rest, when it ended: the attempt's rows now sum up to what it was charged
    external  money that was spent elsewhere; negative takes back what was written wrongly
    moved     of the day that runs, to what the same moment is called by another zone or window

An attempt that runs from one day into the next is charged to both, each with its part. Days are
those of the caps (`worker.clock.window.CapDays`): nothing is ever summed over all time.
Knows no cap; that is the governor's.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    func,
    insert,
    or_,
    select,
)

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.problems import problems_of
from worker.amounts import Amount, Day
from worker.clock.window import EARLIEST, CapDays, local_day
from worker.db.changes import announce
from worker.db.connection import Database
from worker.db.tables import job, ledger
from worker.db.zone import days_of
from worker.queue.states import State

SECONDS_PER_HOUR = 3600.0


class Entry(StrEnum):
    """What a row stands for."""

    RESERVE = "reserve"
    METER = "meter"
    SETTLE = "settle"
    EXTERNAL = "external"
    MOVED = "moved"


USED = (Entry.METER, Entry.SETTLE)


class Spent(NamedTuple):
    """Of one local day and one lane."""

    usd: float
    """Of runs, and what was spent elsewhere."""
    seconds: float
    """Of the lane."""


NOTHING = Spent(0.0, 0.0)


class Meter(NamedTuple):
    """Whose time a row counts."""

    lane: str
    job_id: int
    attempt: int
    price_usd_h: float
    days: CapDays
    actor: str


class Ended(NamedTuple):
    """What a settlement needs to know of an attempt: the same as its row."""

    job_id: int
    n: int
    ended_at: float
    seconds: float
    outcome: str


class ExternalSpend(BaseModel):
    """Money that was spent elsewhere and counts against the day's cap.

    A negative amount takes back what was written for that day by mistake, no more than that.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    usd: Amount = Field(ge=-1_000_000, le=1_000_000)
    note: str = Field("", max_length=200)
    day: Day | None = None

    @field_validator("usd")
    @classmethod
    def _something(cls, usd: float) -> float:
        if usd == 0:
            raise ValueError("is nothing; give what was spent, or less than 0 to take it back")
        return usd


def reserve(conn: Connection, meter: Meter, seconds: float, *, at: float) -> None:
    """Hold what an attempt is expected to use."""
    day = meter.days.day_of(at)
    _append(conn, meter, Entry.RESERVE, day, seconds, at=at, note="expected")


def use(
    conn: Connection,
    meter: Meter,
    *,
    begin: float,
    seconds: float,
    at: float,
    joules: float | None = None,
) -> None:
    """Charge a piece of an attempt that began at `begin` and took `seconds`, and its energy."""
    for day, part in _by_day(begin, seconds, meter.days):
        energy = None if joules is None else joules * part / seconds
        _append(conn, meter, Entry.METER, day, part, at=at, note="used", joules=energy)


def settle(conn: Connection, ended: Ended, *, lane: str, price_usd_h: float, actor: str) -> None:
    """Charge what is missing of an attempt that has ended."""
    metered = _metered(conn, ended.job_id, ended.n)
    meter = Meter(lane, ended.job_id, ended.n, price_usd_h, days_of(conn, lane), actor)
    rest = ended.seconds - metered
    # Less than was metered: the supervisor died between its last heartbeat and its last row.
    begin = ended.ended_at - max(rest, 0.0)
    for day, part in _by_day(begin, rest, meter.days):
        note = f"{ended.outcome}, settled"
        _append(conn, meter, Entry.SETTLE, day, part, at=ended.ended_at, note=note)


def spend_elsewhere(db: Database, raw: dict[str, Any], *, actor: str, now: float) -> ExternalSpend:
    """Write an external spend of a day up to tomorrow. Raises ConfigError."""
    try:
        spend = ExternalSpend.model_validate({k: v for k, v in raw.items() if v is not None})
    except ValidationError as error:
        raise ConfigError(problems_of(error, ExternalSpend)) from error
    with db.write_tx() as conn:
        days = days_of(conn, db.settings.lane)
        day = spend.day or days.day_of(now)
        today = local_day(now, days.zone)
        # As far as the report goes: the night that runs bears the name of tomorrow's morning.
        if not EARLIEST <= day <= today + datetime.timedelta(days=1):
            remedy = f"give a day from {EARLIEST} to tomorrow"
            raise ConfigError([ConfigProblem("day", str(day), "is no day of the lane", remedy)])
        if spend.usd < 0:
            _written_before(conn, day, spend.usd)
        conn.execute(
            insert(ledger).values(
                at=now,
                day=day.isoformat(),
                entry=Entry.EXTERNAL,
                seconds=0.0,
                usd=spend.usd,
                price_usd_h=0.0,
                actor=actor,
                note=spend.note or ("spent elsewhere" if spend.usd > 0 else "taken back"),
            )
        )
        announce(conn, "lane")
    return spend.model_copy(update={"day": day})


def _written_before(conn: Connection, day: datetime.date, usd: float) -> None:
    """A day's money may come down to what its lanes used, not below. Raises ConfigError."""
    own = (ledger.c.entry == Entry.EXTERNAL) & (ledger.c.day == day.isoformat())
    written = float(conn.execute(select(func.sum(ledger.c.usd)).where(own)).scalar() or 0.0)
    if round(written + usd, 6) >= 0:
        return
    problem = f"takes back more than the ${written:.2f} that {day} has from elsewhere"
    remedy = f"give no less than {-written:.2f}" if written > 0 else "name the day it stands in"
    raise ConfigError([ConfigProblem("usd", f"{usd:.2f}", problem, remedy)])


def move_today(
    conn: Connection, lane: str, before: CapDays, after: CapDays, *, actor: str, now: float
) -> None:
    """Keep what the day that runs has come to when its days begin to be counted another way.

    Another time zone, or a night that is not cut at midnight any more, may give the same moment
    another date; without this a cap that is spent would begin anew.
    """
    old, new = before.day_of(now), after.day_of(now)
    used = NOTHING if old == new else spent(conn, lane, old)
    if used == NOTHING:
        return
    for day, sign in ((old, -1), (new, 1)):
        conn.execute(
            insert(ledger).values(
                at=now,
                day=day.isoformat(),
                lane=lane,
                entry=Entry.MOVED,
                seconds=sign * used.seconds,
                usd=sign * used.usd,
                price_usd_h=0.0,
                actor=actor,
                note=f"{old} is {new} as days are counted now",
            )
        )


def spent(conn: Connection, lane: str, day: datetime.date) -> Spent:
    """What was used on a local day, with what was spent elsewhere."""
    found = conn.execute(_SPENT, {"of_lane": lane, "of_day": day.isoformat()}).one()
    return Spent(float(found.usd or 0.0), float(found.seconds or 0.0))


def held(conn: Connection, lane: str) -> Spent:
    """What running attempts have reserved and not used yet."""
    usd = seconds = 0.0
    for row in conn.execute(_RESERVED, {"of_lane": lane}):
        used = _metered(conn, row.job_id, row.attempt)
        left = max(0.0, row.seconds - used)
        seconds += left
        usd += row.usd * (left / row.seconds if row.seconds else 0.0)
    return Spent(usd, seconds)


class LedgerView(BaseModel):
    """One row."""

    model_config = ConfigDict(frozen=True)

    id: int
    at: float
    day: str
    lane: str | None
    job_id: int | None
    attempt: int | None
    entry: Entry
    seconds: float
    usd: float
    joules: float | None
    price_usd_h: float
    actor: str
    note: str


class DayView(BaseModel):
    """One local day of the lane."""

    model_config = ConfigDict(frozen=True)

    day: datetime.date
    spent_usd: float
    used_hours: float
    held_usd: float
    """Of that, running attempts have reserved so much more."""
    rows: list[LedgerView]


def day_view(db: Database, day: datetime.date | None, now: float) -> DayView:
    """A local day's sums and rows, oldest first; today by default."""
    lane = db.settings.lane
    with db.read() as conn:
        day = day or days_of(conn, lane).day_of(now)
        found = spent(conn, lane, day)
        statement = (
            select(ledger)
            .where(_counts(lane), ledger.c.day == day.isoformat())
            .order_by(ledger.c.id)
        )
        rows = [LedgerView.model_validate(row) for row in conn.execute(statement).mappings()]
        waiting = held(conn, lane)
    return DayView(
        day=day,
        spent_usd=found.usd,
        used_hours=found.seconds / SECONDS_PER_HOUR,
        held_usd=waiting.usd,
        rows=rows,
    )


def external_between(
    db: Database, begin: float, end: float, days: Collection[datetime.date]
) -> float:
    """US dollars spent elsewhere on these days that were written down in a stretch of time."""
    statement = select(func.coalesce(func.sum(ledger.c.usd), 0.0)).where(
        ledger.c.entry == Entry.EXTERNAL,
        ledger.c.at >= begin,
        ledger.c.at < end,
        ledger.c.day.in_([day.isoformat() for day in days]),
    )
    with db.read() as conn:
        return float(conn.execute(statement).scalar_one())


def _counts(lane: str) -> ColumnElement[bool]:
    return or_(ledger.c.lane == lane, ledger.c.lane.is_(None))


_ROW = insert(ledger)
_SPENT = select(
    func.sum(ledger.c.usd).label("usd"), func.sum(ledger.c.seconds).label("seconds")
).where(
    or_(ledger.c.lane == bindparam("of_lane"), ledger.c.lane.is_(None)),
    ledger.c.day == bindparam("of_day"),
    ledger.c.entry != Entry.RESERVE,
)
_RESERVED = (
    select(ledger.c.job_id, ledger.c.attempt, ledger.c.usd, ledger.c.seconds)
    .join(
        job,
        and_(
            job.c.id == ledger.c.job_id,
            job.c.attempt == ledger.c.attempt,
            job.c.state == State.RUNNING,
        ),
    )
    .where(ledger.c.lane == bindparam("of_lane"), ledger.c.entry == Entry.RESERVE)
)
_USED = (
    ledger.c.job_id == bindparam("of_job"),
    ledger.c.attempt == bindparam("of_attempt"),
    ledger.c.entry != Entry.RESERVE,
)
_SECONDS = func.coalesce(func.sum(ledger.c.seconds), 0.0).label("seconds")
_METERED = select(_SECONDS).where(*_USED)


def _metered(conn: Connection, job_id: int, attempt: int) -> float:
    """Seconds charged to an attempt so far."""
    asked = {"of_job": job_id, "of_attempt": attempt}
    return float(conn.execute(_METERED, asked).scalar_one())


def _by_day(begin: float, seconds: float, days: CapDays) -> Iterator[tuple[datetime.date, float]]:
    """A stretch of time cut where a day ends in it: [(day, seconds of it), …]."""
    if seconds <= 0:
        yield days.day_of(begin), seconds
        return
    while seconds > 0:
        day = days.day_of(begin)
        part = min(seconds, days.ends(day) - begin)
        yield day, part
        begin, seconds = begin + part, seconds - part


def _append(
    conn: Connection,
    meter: Meter,
    entry: Entry,
    day: datetime.date,
    seconds: float,
    *,
    at: float,
    note: str,
    joules: float | None = None,
) -> None:
    row = {
        "at": at,
        "day": day.isoformat(),
        "lane": meter.lane,
        "job_id": meter.job_id,
        "attempt": meter.attempt,
        "entry": entry,
        "seconds": seconds,
        "usd": seconds / SECONDS_PER_HOUR * meter.price_usd_h,
        "joules": joules,
        "price_usd_h": meter.price_usd_h,
        "actor": meter.actor,
        "note": note,
    }
    conn.execute(_ROW, row)
