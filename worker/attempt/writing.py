"""Writes how an attempt ended: one fenced transaction for the job, its audit, followers and lane.

Decides nothing but that a job whose cancel was asked for is not queued again, nor one that makes no
progress; supervisor and rescue bring the verdict.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, bindparam, insert, null, select

from engine.contract.run_dir import AbortReason
from worker.attempt import follow_up
from worker.attempt.fruitless import NO_PROGRESS, judged
from worker.attempt.settlement import Verdict
from worker.budget import ledger
from worker.db.tables import attempt, job
from worker.lane.lease import Lease
from worker.queue.deferral import FREE, columns_of
from worker.queue.dependencies import conclude
from worker.queue.states import State, apply, moving


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


def write_verdict(
    lease: Lease, job_id: int, number: int, verdict: Verdict, *, last_sign: Row[Any] | None = None
) -> Settled:
    """Settle attempt `number`; it is charged up to now.

    `last_sign`: the job's row as its dead supervisor left it; then it is charged up to the last
    heartbeat. Raises LeaseLostError, and nothing is written, when the lane was taken over.
    """
    verdict = judged(lease.db, job_id, number, verdict)
    next_job = follow_up.prepared(lease.db, job_id) if verdict.to is State.SUCCEEDED else None
    with lease.db.write_tx() as conn:
        told, who = verdict, actor()
        given_up = verdict.cause == NO_PROGRESS
        if (verdict.to is State.QUEUED or given_up) and _cancel_asked(conn, job_id):
            # What was to become of it is not so any more; how its attempt ended still is.
            why = "; ".join(filter(None, ("cancelled", verdict.ended)))
            told = Verdict(State.CANCELLED, why)
        known = {
            "the_job": job_id,
            "the_fence": lease.fence,
            "the_cause": told.cause,
            "the_error": told.error,
            "now": time.time() if told.to.final else None,
            "oom": int(told.oom),
            "rescue": int(told.rescue),
            **(_FREE if told.deferral is None else _bound(columns_of(told.deferral))),
        }
        moved = apply(conn, _SETTLE, State.RUNNING, told.to, known, actor=who, why=told.why)
        if moved is None:
            raise lease.lost()
        _charge(conn, moved, lease, told, last_sign)
        if told.to.final:
            conclude(conn, moved, actor=who)
        if next_job is not None:
            follow_up.make(conn, job_id, next_job, actor=who)
        lease.clear_job(conn)
        return Settled(job_id, number, told.to, told.cause, told.error, told.later)


def _bound(columns: Mapping[str, Any]) -> dict[str, Any]:
    """For `_SETTLE`: SQLAlchemy keeps the columns' own names for itself."""
    return {f"the_{name}": value for name, value in columns.items()}


_FREE = _bound(FREE)
_SETTLE = moving(
    State.RUNNING,
    job.c.id == bindparam("the_job"),
    job.c.fence == bindparam("the_fence"),
    values={
        "lane": null(),
        "engine": null(),
        "stop_requested": null(),
        "cause": bindparam("the_cause"),
        "error": bindparam("the_error"),
        "finished_at": bindparam("now"),
        "oom_deferred": job.c.oom_deferred + bindparam("oom"),
        "rescues": job.c.rescues + bindparam("rescue"),
        **{name: bindparam(bound) for name, bound in zip(FREE, _FREE, strict=True)},
    },
    returning=(
        job.c.id,
        job.c.state,
        job.c.attempt,
        job.c.fence,
        job.c.followers,
        job.c.attempt_started_at,
        job.c.started_beat,
        job.c.cause,
    ),
)


_ENDED = insert(attempt)


def _cancel_asked(conn: Connection, job_id: int) -> bool:
    """Who asked for a cancel gets it, whatever ended the attempt first."""
    asked = select(job.c.stop_requested).where(job.c.id == job_id)
    return bool(conn.execute(asked).scalar_one() == AbortReason.CANCEL)


def _charge(
    conn: Connection,
    settled: Row[Any],
    lease: Lease,
    verdict: Verdict,
    last_sign: Row[Any] | None,
) -> None:
    """The row of an ended attempt: how long it held the lane, what came of it, what it cost."""
    ended, beat = time.time(), time.monotonic()
    if last_sign is not None:
        ended, beat = last_sign.heartbeat_at, last_sign.beat
    charged = ledger.Ended(
        job_id=settled.id,
        n=settled.attempt,
        ended_at=ended,
        # Both beats are of one boot: claim and heartbeats come from the same supervisor.
        seconds=max(0.0, (beat or 0.0) - (settled.started_beat or beat or 0.0)),
        outcome=settled.state,
    )
    row = {
        **charged._asdict(),
        "fence": settled.fence,
        "lane": lease.lane,
        "started_at": settled.attempt_started_at or ended,
        # What interrupted it, also where the job goes on and has no cause.
        "cause": settled.cause or verdict.interrupted,
    }
    conn.execute(_ENDED, row)
    price = lease.db.settings.price_usd_h
    ledger.settle(conn, charged, lane=lease.lane, price_usd_h=price, actor=actor())
