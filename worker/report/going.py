"""What ran on when a night ended, or runs on now: its time in the night, and how far it has come.

An attempt belongs to the night in which it ends, with its verdict. Until then it stands here, so
that no night in which the lane worked looks like one in which it did not. Knows no sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection, func, select

from engine.contract.known import real
from worker.attempt.ingest import SILENT_SINCE
from worker.budget.ledger import USED
from worker.clock.night import Night
from worker.db.connection import Database
from worker.db.tables import attempt, job, ledger, metric
from worker.queue.states import State
from worker.read.series import evenly
from worker.report.runs import GATES_KEPT, HELDOUT

POOL = "pool/score"
"""Every step of every kind that samples writes it."""


class GoingLine(BaseModel):
    """One attempt that the night's end, or now, found running."""

    model_config = ConfigDict(frozen=True)

    job_id: int
    name: str
    kind: str
    n: int
    """Which attempt of the job."""
    started_at: float
    until: float
    """Up to when it ran in the night: its end, now, or the supervisor's last sign of life."""
    alive: bool
    """Whether it ran up to the end, or up to now."""
    silent_since: float | None = None
    """The time of its last event, while it runs and has written none for too long."""
    seconds: float
    """Of the lane, in the night."""
    usd: float
    """Charged in the night."""
    joules: float | None
    """Used in the night; None where no counter could be read."""
    step: int | None
    """The last one measured by then."""
    heldout: list[tuple[int, float]]
    """(step, score on the `select` rows) of the gates by then, thinned."""


class _Found(NamedTuple):
    job_id: int
    name: str
    kind: str
    n: int
    started_at: float
    last: float
    """Its end, or the last that is known of it."""
    silent_since: float | None = None


def going_on(db: Database, night: Night, now: float) -> list[GoingLine]:
    """In the order in which they started; those that a dead supervisor left behind among them."""
    until = min(night.end, now)
    with db.read() as conn:
        found = [*_ended_later(conn, db, night), *_running(conn, db, now)]
        return [
            _line(conn, one, night, until)
            for one in sorted(found, key=lambda one: one.started_at)
            if one.started_at < until and one.last > night.begin
        ]


def _ended_later(conn: Connection, db: Database, night: Night) -> Iterator[_Found]:
    statement = (
        select(attempt, job.c.name, job.c.kind)
        .join(job, job.c.id == attempt.c.job_id)
        .where(
            attempt.c.lane == db.settings.lane,
            attempt.c.started_at < night.end,
            attempt.c.ended_at >= night.end,
        )
    )
    for row in conn.execute(statement):
        yield _Found(row.job_id, row.name, row.kind, row.n, row.started_at, row.ended_at)


def _running(conn: Connection, db: Database, now: float) -> Iterator[_Found]:
    columns = (job.c.id, job.c.name, job.c.kind, job.c.attempt, job.c.result)
    times = (job.c.attempt_started_at, job.c.heartbeat_at)
    mine = (job.c.state == State.RUNNING, job.c.lane == db.settings.lane)
    statement = select(*columns, *times).where(*mine)
    for row in conn.execute(statement):
        started_at = row.attempt_started_at
        beat = row.heartbeat_at or started_at
        last = now if now - beat <= db.settings.lease_s else beat
        silent = real(row.result.get(SILENT_SINCE))
        yield _Found(row.id, row.name, row.kind, row.attempt, started_at, last, silent)


def _line(conn: Connection, one: _Found, night: Night, until: float) -> GoingLine:
    end = min(one.last, until)
    charged = conn.execute(
        select(
            func.sum(ledger.c.usd).label("usd"), func.sum(ledger.c.joules).label("joules")
        ).where(
            ledger.c.job_id == one.job_id,
            ledger.c.attempt == one.n,
            ledger.c.entry.in_(USED),
            ledger.c.at >= night.begin,
            ledger.c.at < night.end,
        )
    ).one()
    measured = select(metric.c.step, metric.c.value).where(
        metric.c.job_id == one.job_id, metric.c.at < night.end
    )
    newest = measured.where(metric.c.series == POOL).order_by(metric.c.step.desc()).limit(1)
    gates = measured.where(metric.c.series == HELDOUT).order_by(metric.c.step)
    step = conn.execute(newest).scalar_one_or_none()
    return GoingLine(
        job_id=one.job_id,
        name=one.name,
        kind=one.kind,
        n=one.n,
        started_at=one.started_at,
        until=end,
        alive=end >= until,
        silent_since=one.silent_since,
        seconds=end - max(one.started_at, night.begin),
        usd=charged.usd or 0.0,
        joules=charged.joules,
        step=step,
        heldout=evenly([(row.step, row.value) for row in conn.execute(gates)], GATES_KEPT),
    )
