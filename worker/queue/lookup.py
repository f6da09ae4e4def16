"""Jobs and sweeps by their number: the row as it is, or the error that there is none."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, select

from engine.contract.errors import NightlaneError
from worker.db.connection import Database
from worker.db.tables import job, sweep
from worker.queue.states import State


class JobNotFoundError(NightlaneError):
    """No job has this id."""

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(f"job {job_id} does not exist; list them with: cockpit jobs")


class SweepNotFoundError(NightlaneError):
    """No sweep has this id."""

    def __init__(self, sweep_id: int) -> None:
        self.sweep_id = sweep_id
        super().__init__(f"sweep {sweep_id} does not exist; list its jobs with: cockpit jobs")


def job_row(conn: Connection, job_id: int) -> Row[Any]:
    """Every column of a job. Raises JobNotFoundError."""
    row = conn.execute(select(job).where(job.c.id == job_id)).one_or_none()
    if row is None:
        raise JobNotFoundError(job_id)
    return row


def sweep_row(conn: Connection, sweep_id: int) -> Row[Any]:
    """Every column of a sweep. Raises SweepNotFoundError."""
    row = conn.execute(select(sweep).where(sweep.c.id == sweep_id)).one_or_none()
    if row is None:
        raise SweepNotFoundError(sweep_id)
    return row


def jobs_of_sweep(conn: Connection, sweep_id: int) -> list[int]:
    """The ids of a sweep's jobs, in the order in which they were made."""
    members = select(job.c.id).where(job.c.sweep_id == sweep_id, job.c.sweep_id.is_not(None))
    return list(conn.execute(members.order_by(job.c.id)).scalars())


def running_ids(db: Database) -> list[int]:
    """The jobs that run now, oldest first."""
    with db.read() as conn:
        running = select(job.c.id).where(job.c.state == State.RUNNING).order_by(job.c.id)
        return list(conn.execute(running).scalars())
