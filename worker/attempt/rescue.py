"""Rescue: jobs that say `running` although nobody supervises them.

Called by the holder of the lane, so every running job of the lane is an orphan. Its engine is
confirmed dead, what it still wrote is fetched and read, and the job is settled as its files tell:
mostly queued again, to resume. Knows no live attempt.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Row, select

from engine.contract.ends import SERVER_LOST
from engine.contract.registry import make_smaller
from engine.contract.run_dir import ExitCode, RunDir
from worker.attempt.earlier import in_a_row
from worker.attempt.ingest import Ingest, UnreadableEventsError, last_finished
from worker.attempt.runner.base import Runner
from worker.attempt.settlement import (
    Ending,
    Verdict,
    settle,
    settle_lost,
    settle_unreadable,
)
from worker.attempt.writing import Settled, write_verdict
from worker.db.connection import Database
from worker.db.tables import job
from worker.lane.lease import Lease
from worker.queue.states import State

_EXIT_OF = {
    "done": ExitCode.DONE,
    "aborted": ExitCode.ABORTED,
    "declined": ExitCode.DECLINED,
}


def rescue(lease: Lease, runner: Runner) -> list[Settled]:
    """Settle every orphan of the lane, oldest first."""
    orphans = (
        select(job).where(job.c.state == State.RUNNING, job.c.lane == lease.lane).order_by(job.c.id)
    )
    with lease.db.read() as conn:
        rows = conn.execute(orphans).all()
    return [_rescue(lease, runner, row) for row in rows]


def _rescue(lease: Lease, runner: Runner, row: Row[Any]) -> Settled:
    run = RunDir(lease.db.settings.runs_dir / str(row.id))
    runner.kill(run, row.attempt, row.engine)
    runner.fetch(run, row.attempt)
    try:
        ingest = Ingest(lease, row.id, run)
        ingest.pull()
        ingest.flush()
        verdict = _verdict(lease.db, run, row)
    except (UnreadableEventsError, OSError) as error:
        # One run's files must not keep all others from running.
        verdict = settle_unreadable(error)
    return write_verdict(lease, row.id, row.attempt, verdict, last_sign=row)


def _verdict(db: Database, run: RunDir, row: Row[Any]) -> Verdict:
    """An engine that got to its end, or was asked to stop, is settled like any other."""
    most = db.settings.max_attempts
    finished = last_finished(run, row.attempt)
    abort = run.attempt(row.attempt).read_abort()
    status = _EXIT_OF.get(str(finished.get("status"))) if finished else None
    if status is None and abort is not None:
        status = ExitCode.ABORTED
    if status is None:
        return settle_lost(row.rescues, most)
    ending = Ending(
        status,
        abort,
        finished,
        "",
        row.oom_deferred,
        make_smaller=make_smaller(row.kind),
        servers_lost=in_a_row(db, row.id, SERVER_LOST, most),
        max_attempts=most,
    )
    return settle(ending, time.time())
