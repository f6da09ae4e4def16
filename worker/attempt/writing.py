"""Writes how an attempt ended: one fenced transaction for the job, its audit and the lane.

Decides nothing; supervisor and rescue bring the verdict.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from worker.attempt.settlement import Verdict
from worker.jobs.states import State, transition
from worker.jobs.tables import job
from worker.lane.lock import Lease


class Settled(NamedTuple):
    """How one attempt ended."""

    job_id: int
    attempt: int
    state: State
    cause: str | None
    error: str | None
    later: bool
    """Queued, but not for the drain that put it back."""


def actor() -> str:
    """This drain, as the audit names it."""
    return f"drain:{os.getpid()}"


def write_verdict(lease: Lease, job_id: int, attempt: int, verdict: Verdict) -> Settled:
    """Raises LeaseLostError, and nothing is written, when the lane was taken over."""
    with lease.db.write_tx() as conn:
        moved = transition(
            conn,
            job_id,
            verdict.to,
            actor=actor(),
            why=verdict.why,
            fence=lease.fence,
            lane=None,
            engine=None,
            cause=verdict.cause,
            error=verdict.error,
            finished_at=time.time() if verdict.to.final else None,
            oom_deferred=job.c.oom_deferred + int(verdict.oom),
            rescues=job.c.rescues + int(verdict.rescue),
        )
        if not moved:
            raise lease.lost()
        lease.clear_job(conn)
    return Settled(job_id, attempt, verdict.to, verdict.cause, verdict.error, verdict.later)
