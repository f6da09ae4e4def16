"""A lane by hand: what it was charged, its attempts and the rows of its queue."""

from __future__ import annotations

import datetime
from typing import Any

from sqlalchemy import RowMapping, insert, select, update

from worker.budget import ledger
from worker.budget.ledger import Meter
from worker.clock.window import CapDays, zone_named
from worker.db.connection import Database
from worker.db.tables import attempt, job, lane

BERLIN = zone_named("Europe/Berlin")
NOON = datetime.datetime(2026, 6, 1, 12, tzinfo=BERLIN).timestamp()
"""A Monday in summer."""


def berlin(text: str) -> float:
    """A wall-clock time in Berlin as Unix seconds."""
    return datetime.datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()


def charge(
    db: Database, number: int, *, seconds: float, at: float, n: int = 1, price: float = 1.0
) -> None:
    """Meter a piece of an attempt that ends at `at`."""
    meter = Meter(db.settings.lane, number, n, price, CapDays(BERLIN), "test")
    with db.write_tx() as conn:
        ledger.use(conn, meter, begin=at - seconds, seconds=seconds, at=at)


def ended(db: Database, number: int, *, at: float, n: int = 1, **values: Any) -> None:
    """An attempt of a job that ended at `at`, as the settlement writes it, under the next fence."""
    row = {
        "job_id": number,
        "n": n,
        "lane": db.settings.lane,
        "started_at": at - values.get("seconds", 60),
        "ended_at": at,
        "seconds": 60.0,
        "outcome": "succeeded",
        "cause": None,
    }
    mine = lane.c.name == db.settings.lane
    with db.write_tx() as conn:
        fence = conn.execute(select(lane.c.fence).where(mine)).scalar_one_or_none()
        if fence is None:
            fence = 0
            conn.execute(insert(lane).values(name=db.settings.lane, fence=0))
        conn.execute(update(lane).where(mine).values(fence=fence + 1))
        conn.execute(insert(attempt).values({"fence": fence + 1, **row, **values}))


def succeeded(db: Database, number: int, **values: Any) -> None:
    """A job that is done, with whatever columns matter."""
    with db.write_tx() as conn:
        conn.execute(update(job).where(job.c.id == number).values(state="succeeded", **values))


def row_of(db: Database, number: int) -> RowMapping:
    """A job's row."""
    with db.read() as conn:
        return conn.execute(select(job).where(job.c.id == number)).mappings().one()
