"""A night made of rows: attempts that ended, what they cost, what was decided."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update

from tests.worker.lane_rows import BERLIN, berlin, charge, ended
from worker.clock.night import Night, night_of
from worker.db import decisions
from worker.db.connection import Database
from worker.db.tables import job
from worker.schedule.policy import Policy, arm

MORNING = datetime.date(2026, 6, 2)
NIGHT: Night = night_of(MORNING, BERLIN)


def at(clock: str) -> float:
    """A wall-clock time of the night: the evening's hours are the day before."""
    day = "2026-06-01" if clock >= "12:00" else "2026-06-02"
    return berlin(f"{day}T{clock}")


@pytest.fixture
def armed(db: Database) -> Callable[..., None]:
    """Arm the lane for the night, in the afternoon before."""

    def switch(when: str = "18:00", **terms: Any) -> None:
        policy = Policy(**{"zone": "Europe/Berlin", "window": "22:00-07:00"} | terms)
        arm(db, policy, actor="test", now=at(when))

    return switch


@pytest.fixture
def ran(db: Database, tally: Callable[..., int]) -> Callable[..., int]:
    """A job with one attempt of the night; its row's columns as given."""
    steps = iter(range(1, 1000))

    def write(
        begin: str,
        end: str,
        *,
        state: str = "succeeded",
        cause: str | None = None,
        number: int | None = None,
        n: int = 1,
        outcome: str | None = None,
        **columns: Any,
    ) -> int:
        job_id = number if number is not None else tally(steps=next(steps))
        seconds = at(end) - at(begin)
        charge(db, job_id, seconds=seconds, at=at(end), n=n)
        ended(
            db,
            job_id,
            at=at(end),
            n=n,
            seconds=seconds,
            outcome=outcome or state,
            cause=cause,
        )
        last = cause if state in {"failed", "aborted"} else None
        with db.write_tx() as conn:
            settled = update(job).where(job.c.id == job_id)
            conn.execute(settled.values(state=state, cause=last, **columns))
        return job_id

    return write


@pytest.fixture
def goes(db: Database, tally: Callable[..., int]) -> Callable[..., int]:
    """A job that runs since `begin`, at a dollar an hour; its supervisor was `seen` alive last."""

    def write(begin: str | float, seen: str | float) -> int:
        job_id = tally(steps=1000)
        started_at, beat = (at(one) if isinstance(one, str) else one for one in (begin, seen))
        charge(db, job_id, seconds=beat - started_at, at=beat)
        with db.write_tx() as conn:
            row = {"lane": db.settings.lane, "attempt": 1, "heartbeat_at": beat}
            going = update(job).where(job.c.id == job_id)
            conn.execute(going.values(state="running", attempt_started_at=started_at, **row))
        return job_id

    return write


def decided(
    db: Database, clock: str, what: str, detail: str, job_id: int | None = None, **more: Any
) -> None:
    """A row of the lane's audit."""
    with db.write_tx() as conn:
        decisions.record(
            conn, "cpu", what, detail, actor="test", job_id=job_id, at=at(clock), **more
        )
