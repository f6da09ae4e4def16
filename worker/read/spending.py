"""What was spent (the ledger's read side): by day, by job, row by row. Writes nothing.

Sums are over a bounded number of local days and rows come by keyset, so no page ever reads the
whole ledger. What is only reserved is not spent.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, bindparam, func, or_, select

from worker.budget.ledger import Entry, LedgerView, Spent, held
from worker.db.connection import Database
from worker.db.tables import job, ledger
from worker.db.zone import days_of
from worker.schedule import policy

MOST_DAYS = 30
MOST_ROWS = 200


class DaySpent(NamedTuple):
    """One local day."""

    day: datetime.date
    usd: float
    """Of runs and elsewhere."""
    external_usd: float
    hours: float
    """Of the lane."""
    cap_usd: float | None
    cap_gpu_hours: float | None
    """Of the policy that was in force last on that day."""


class JobSpent(NamedTuple):
    """One job, over the days that were asked for."""

    job_id: int
    name: str
    kind: str
    usd: float
    hours: float
    kwh: float | None
    """None where no counter could be read."""


class Spending(NamedTuple):
    """The last days of a lane."""

    days: Sequence[DaySpent]
    """Newest first, days without a row among them."""
    jobs: Sequence[JobSpent]
    """The dearest ones, then the longest."""
    more_jobs: int
    held: Spent
    """What running attempts have reserved and not used yet."""


_BY_DAY_AND_JOB = (
    select(
        ledger.c.day,
        ledger.c.job_id,
        func.sum(ledger.c.usd),
        func.sum(ledger.c.seconds),
        func.sum(ledger.c.joules),
        ledger.c.entry,
    )
    .where(
        or_(ledger.c.lane == bindparam("of_lane"), ledger.c.lane.is_(None)),
        ledger.c.day >= bindparam("first"),
        ledger.c.day <= bindparam("last"),
        ledger.c.entry != Entry.RESERVE,
    )
    .group_by(ledger.c.day, ledger.c.job_id, ledger.c.entry)
)
_NAMES = select(job.c.id, job.c.name, job.c.kind).where(
    job.c.id.in_(bindparam("ids", expanding=True))
)


def spending(db: Database, now: float, *, days: int = MOST_DAYS, jobs: int = 20) -> Spending:
    """The last `days` local days up to now, and the `jobs` that took most of them."""
    lane = db.settings.lane
    with db.read() as conn:
        counted = days_of(conn, lane)
        today = counted.day_of(now)
        wanted = [today - datetime.timedelta(days=back) for back in range(min(days, MOST_DAYS))]
        asked = {"of_lane": lane, "first": wanted[-1].isoformat(), "last": today.isoformat()}
        rows = [tuple(row) for row in conn.execute(_BY_DAY_AND_JOB, asked)]
        by_job = _by_job(rows)
        by_day: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        for row in rows:
            by_day[row[0]].append(row)
        dearest = sorted(by_job, key=lambda number: by_job[number][:2], reverse=True)
        names = {row.id: row for row in conn.execute(_NAMES, {"ids": dearest[:jobs]})}
        waiting = held(conn, lane)
    caps = policy.in_force(db, counted.begins(wanted[-1]), now)
    return Spending(
        days=[
            _day(
                day,
                by_day[day.isoformat()],
                [
                    found.terms
                    for found in caps
                    if found.begin < counted.ends(day) and found.end > counted.begins(day)
                ],
            )
            for day in wanted
        ],
        jobs=[
            JobSpent(number, names[number].name, names[number].kind, *_job(by_job[number]))
            for number in dearest[:jobs]
        ],
        more_jobs=max(0, len(dearest) - jobs),
        held=waiting,
    )


def entries(
    db: Database,
    *,
    before: int | None = None,
    limit: int = 50,
    day: datetime.date | None = None,
    entry: Entry | None = None,
) -> list[LedgerView]:
    """One page of rows, newest first; the next page is the one `before` the last id of this one."""
    statement = (
        select(ledger)
        .where(_counts(db.settings.lane))
        .order_by(ledger.c.id.desc())
        .limit(max(0, min(limit, MOST_ROWS)))
    )
    if before is not None:
        statement = statement.where(ledger.c.id < before)
    if day is not None:
        statement = statement.where(ledger.c.day == day.isoformat())
    if entry is not None:
        statement = statement.where(ledger.c.entry == entry)
    with db.read() as conn:
        return [LedgerView.model_validate(row) for row in conn.execute(statement).mappings()]


def _day(
    day: datetime.date, rows: Sequence[tuple[Any, ...]], terms: Sequence[policy.Policy]
) -> DaySpent:
    last = terms[-1] if terms else None
    return DaySpent(
        day=day,
        usd=sum(row[2] for row in rows),
        external_usd=sum(row[2] for row in rows if row[5] == Entry.EXTERNAL),
        hours=sum(row[3] for row in rows) / 3600,
        cap_usd=last.cap_usd if last else None,
        cap_gpu_hours=last.cap_gpu_hours if last else None,
    )


def _by_job(rows: Sequence[tuple[Any, ...]]) -> dict[int, tuple[float, float, float | None]]:
    """Job → (US dollars, seconds, joules) over all days."""
    sums: dict[int, list[tuple[float, float, float | None]]] = defaultdict(list)
    for _, number, usd, seconds, joules, _entry in rows:
        if number is not None:
            sums[number].append((usd, seconds, joules))
    return {
        number: (
            sum(part[0] for part in parts),
            sum(part[1] for part in parts),
            sum(known) if (known := [part[2] for part in parts if part[2] is not None]) else None,
        )
        for number, parts in sums.items()
    }


def _job(sums: tuple[float, float, float | None]) -> tuple[float, float, float | None]:
    usd, seconds, joules = sums
    return usd, seconds / 3600, None if joules is None else joules / 3.6e6


def _counts(lane: str) -> ColumnElement[bool]:
    return or_(ledger.c.lane == lane, ledger.c.lane.is_(None))
