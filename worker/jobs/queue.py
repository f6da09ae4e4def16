"""The queue's two ends: enqueue puts a validated job in, claim takes the next one out.

Knows no process and no lane but the fence that it is handed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, func, insert, select

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.kinds import validate
from worker.database import Database
from worker.jobs.states import State, move, record_created
from worker.jobs.tables import job

MAX_NAME = 120


class Claim(NamedTuple):
    """The right to run one attempt of one job."""

    job_id: int
    kind: str
    config: dict[str, Any]
    attempt: int
    fence: int


def enqueue(
    db: Database, kind: str, raw: Mapping[str, Any], *, actor: str, name: str | None = None
) -> int:
    """Validate a config and put a job at the end of the queue. Returns its id.

    `actor` says who asked and through which door: `cli:ada`. Raises ConfigError with every
    problem found; nothing is written then.
    """
    if name is not None and not 0 < len(name.strip()) <= MAX_NAME:
        problem = ConfigProblem(
            "name", name[:40], f"must have 1 to {MAX_NAME} characters", "shorten it, or leave it"
        )
        raise ConfigError([problem])
    config = validate(kind, raw)
    with db.write_tx() as conn:
        row = {
            "kind": kind,
            "name": name.strip() if name else kind,
            "state": State.QUEUED,
            "config": config.model_dump(mode="json"),
            "created_at": time.time(),
            "created_by": actor,
            "attempt": 0,
            "fence": 0,
            "rescues": 0,
            "oom_deferred": 0,
            "ingested_seq": 0,
            "ingested_offset": 0,
            "result": {},
        }
        job_id: int = conn.execute(insert(job).values(row).returning(job.c.id)).scalar_one()
        record_created(conn, job_id, actor=actor, why="enqueued")
    return job_id


def has_queued(db: Database, *, skip: Sequence[int] = ()) -> bool:
    """A cheap look before a claim: an empty queue costs no write."""
    with db.read() as conn:
        return conn.execute(_oldest(skip)).first() is not None


def claim(
    conn: Connection, *, lane: str, fence: int, actor: str, skip: Sequence[int] = ()
) -> Claim | None:
    """Take the oldest queued job for `lane` under a fence of its own, or None.

    One conditional UPDATE that changes exactly one row: of two claims, one gets the job. Jobs in
    `skip` are left for another drain.
    """
    now = time.time()
    oldest = _oldest(skip).scalar_subquery()
    row = move(
        conn,
        (job.c.id == oldest,),
        State.RUNNING,
        actor=actor,
        why=f"claimed for lane {lane} under fence {fence}",
        values={
            "attempt": job.c.attempt + 1,
            "fence": fence,
            "lane": lane,
            "started_at": func.coalesce(job.c.started_at, now),
            "heartbeat_at": now,
            "cause": None,
            "error": None,
        },
    )
    return None if row is None else Claim(row.id, row.kind, row.config, row.attempt, fence)


def _oldest(skip: Sequence[int]) -> Select[tuple[int]]:
    return (
        select(job.c.id)
        .where(job.c.state == State.QUEUED, job.c.id.not_in(skip))
        .order_by(job.c.id)
        .limit(1)
    )
