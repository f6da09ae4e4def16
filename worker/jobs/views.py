"""The read side: what pages, REST and the command line show. Writes nothing.

Keyset pages only; history is never counted or skipped over.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection, Row, Select, select

from engine.contract.errors import NightlaneError
from worker.database import Database
from worker.jobs.changes import Topic
from worker.jobs.states import State
from worker.jobs.tables import change, job, job_event, lane, metric, state_count
from worker.jobs.waiting import Waiting, why_waiting

MAX_PAGE = 500


class JobNotFoundError(NightlaneError):
    """No job has this id."""

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(f"job {job_id} does not exist; list them with: cockpit jobs")


class _View(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class JobView(_View):
    """One job. Times are Unix seconds in UTC."""

    id: int
    kind: str
    name: str
    state: State
    config: dict[str, Any]
    """Resolved: every default written out."""
    created_at: float
    created_by: str
    started_at: float | None
    """First start of all attempts."""
    finished_at: float | None
    heartbeat_at: float | None
    """The supervisor's last sign of life in the current or last attempt."""
    attempt: int
    """How often it was started; 0 = never."""
    lane: str | None
    """Where it runs now."""
    result: dict[str, Any]
    """The live result while it runs, then the final one."""
    cause: str | None
    """One word for machines when it did not succeed, e.g. CRASH."""
    error: str | None
    """One sentence for people."""
    waits_for: Waiting | None
    """Why a queued job does not run yet; None in any other state."""
    run_dir: Path


class AuditView(_View):
    """One transition."""

    id: int
    at: float
    actor: str
    from_state: State | None
    to_state: State
    why: str


class ChangeView(_View):
    """One row of the change feed."""

    id: int
    topic: Topic
    job_id: int | None


class LaneView(_View):
    """Who holds a lane."""

    lane: str
    held: bool
    pid: int | None
    """The drain."""
    job_id: int | None
    """The job it runs; None while it waits for one."""
    since: float | None
    """Unix seconds at which the drain took the lane."""
    heartbeat_age_s: float | None


def get_job(db: Database, job_id: int) -> JobView:
    """Raises JobNotFoundError."""
    found = _job_views(db, select(job).where(job.c.id == job_id))
    if not found:
        raise JobNotFoundError(job_id)
    return found[0]


def list_jobs(
    db: Database, *, before: int | None = None, limit: int = 50, state: State | None = None
) -> list[JobView]:
    """One page, newest first; the next page is the one `before` the last id of this one."""
    statement = select(job).order_by(job.c.id.desc()).limit(max(0, min(limit, MAX_PAGE)))
    if before is not None:
        statement = statement.where(job.c.id < before)
    if state is not None:
        statement = statement.where(job.c.state == state)
    return _job_views(db, statement)


def next_jobs(db: Database, *, limit: int = 50) -> list[JobView]:
    """Queued jobs in the order in which a drain claims them."""
    return _in_state(db, State.QUEUED, limit)


def running(db: Database) -> list[JobView]:
    """What runs now, oldest first."""
    return _in_state(db, State.RUNNING, MAX_PAGE)


def counts(db: Database) -> dict[State, int]:
    """Jobs in each state, from the kept counters."""
    with db.read() as conn:
        found = {row.state: row.n for row in conn.execute(select(state_count))}
    return {state: found.get(state, 0) for state in State}


def audit(db: Database, job_id: int) -> list[AuditView]:
    """Every transition of a job, oldest first. Raises JobNotFoundError."""
    get_job(db, job_id)
    statement = select(job_event).where(job_event.c.job_id == job_id).order_by(job_event.c.id)
    with db.read() as conn:
        return [AuditView.model_validate(row) for row in conn.execute(statement).mappings()]


def metrics(
    db: Database, job_id: int, series: Sequence[str] | None = None
) -> dict[str, list[tuple[int, float]]]:
    """Measured values as {series: [(step, value), …]}, steps rising; all series by default.

    Raises JobNotFoundError. A series nobody wrote is absent.
    """
    get_job(db, job_id)
    statement = (
        select(metric.c.series, metric.c.step, metric.c.value)
        .where(metric.c.job_id == job_id)
        .order_by(metric.c.series, metric.c.step)
    )
    if series is not None:
        statement = statement.where(metric.c.series.in_(series))
    found: dict[str, list[tuple[int, float]]] = {}
    with db.read() as conn:
        for name, step, value in conn.execute(statement):
            found.setdefault(name, []).append((step, value))
    return found


def changes_after(db: Database, last_id: int, limit: int = 500) -> list[ChangeView]:
    """The change feed behind an id, oldest first. Ask `oldest_change_id` whether it is whole."""
    statement = select(change).where(change.c.id > last_id).order_by(change.c.id).limit(limit)
    with db.read() as conn:
        return [ChangeView.model_validate(row) for row in conn.execute(statement).mappings()]


def last_change_id(db: Database) -> int:
    """0 before the first change."""
    with db.read() as conn:
        newest = select(change.c.id).order_by(change.c.id.desc()).limit(1)
        return conn.execute(newest).scalar_one_or_none() or 0


def oldest_change_id(db: Database) -> int:
    """0 before the first change. A reader whose last id is smaller than this - 1 missed some."""
    with db.read() as conn:
        oldest = select(change.c.id).order_by(change.c.id).limit(1)
        return conn.execute(oldest).scalar_one_or_none() or 0


def lane_status(db: Database, name: str) -> LaneView:
    """Who holds the lane `name`; a lane nobody ever took is free."""
    with db.read() as conn:
        row = _lane_row(conn, name)
    if row is None or row.holder is None:
        return LaneView(
            lane=name, held=False, pid=None, job_id=None, since=None, heartbeat_age_s=None
        )
    return LaneView(
        lane=name,
        held=True,
        pid=int(row.holder.split(":")[1]),
        job_id=row.job_id,
        since=row.since,
        heartbeat_age_s=max(0.0, time.time() - row.heartbeat_at),
    )


def _in_state(db: Database, state: State, limit: int) -> list[JobView]:
    return _job_views(db, select(job).where(job.c.state == state).order_by(job.c.id).limit(limit))


def _job_views(db: Database, statement: Select[Any]) -> list[JobView]:
    """The jobs, and the lane that they may wait for, as they are at one moment."""
    with db.read() as conn:
        rows = conn.execute(statement).mappings().all()
        lane_row = _lane_row(conn, db.settings.lane)
    waiting = _waiting(db, lane_row)
    return [
        JobView.model_validate(
            {
                **row,
                "run_dir": db.settings.runs_dir / str(row["id"]),
                "waits_for": waiting if row["state"] == State.QUEUED else None,
            }
        )
        for row in rows
    ]


def _waiting(db: Database, lane_row: Row[Any] | None) -> Waiting:
    """What every queued job waits for now."""
    held = (
        lane_row is not None
        and lane_row.holder is not None
        and time.time() - lane_row.heartbeat_at <= db.settings.lease_s
    )
    return why_waiting(
        db.settings, lane_held=held, lane_job=lane_row.job_id if lane_row and held else None
    )


def _lane_row(conn: Connection, name: str) -> Row[Any] | None:
    return conn.execute(select(lane).where(lane.c.name == name)).one_or_none()
