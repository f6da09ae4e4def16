"""Reindex: result, metrics and scores of a job, rebuilt from its files.

The same fold that the supervisor writes live. Knows no state but that a running job has a writer.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import func, select, update

from engine.contract.errors import NightlaneError
from engine.contract.events import EventReader
from engine.contract.run_dir import RunDir
from worker.attempt.ingest import drop_metrics, fold, with_mem_trace, write_metrics
from worker.attempt.scores import drop_scores, write_scores
from worker.db.changes import announce
from worker.db.connection import Database
from worker.db.tables import job, metric
from worker.queue.lookup import job_row
from worker.queue.refusals import NoEventsError
from worker.queue.states import State


class JobRunningError(NightlaneError):
    """The supervisor is the only writer of a running job."""

    retryable = True

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(f"job {job_id} is running; reindex it when it has ended")


class Reindexed(NamedTuple):
    """What was rebuilt."""

    job_id: int
    events: int
    metrics: int
    changed: bool
    """Whether the result differs from the one before."""


def reindex(db: Database, job_id: int) -> Reindexed:
    """Rebuild result, metrics and scores of one job from its run directory, in one transaction.

    Raises JobNotFoundError, JobRunningError, and NoEventsError where the files of a job that ran
    are gone: its row is then all that is left of them.
    """
    with db.read() as conn:
        before = job_row(conn, job_id)
    run = RunDir(db.settings.runs_dir / str(job_id))
    reader = EventReader(run.events)
    events = [event for event, _ in reader.read()]
    ran = bool(before.result or before.attempt)
    if ran and not events and before.state != State.RUNNING:
        raise NoEventsError(job_id, run.events)
    result: dict[str, object] = {}
    for event in events:
        result = fold(result, event)
    result = with_mem_trace(result, run)
    with db.write_tx() as conn:
        at_rest = update(job).where(job.c.id == job_id, job.c.state != State.RUNNING)
        written = conn.execute(
            at_rest.values(
                result=result,
                ingested_seq=events[-1]["seq"] if events else 0,
                ingested_offset=reader.offset,
            )
        ).rowcount
        if written != 1:
            raise JobRunningError(job_id)
        drop_metrics(conn, job_id)
        write_metrics(conn, job_id, events)
        drop_scores(conn, job_id)
        write_scores(conn, job_id, events)
        rows = conn.execute(
            select(func.count()).select_from(metric).where(metric.c.job_id == job_id)
        ).scalar_one()
        announce(conn, "job", job_id)
    return Reindexed(job_id, len(events), rows, result != before.result)
