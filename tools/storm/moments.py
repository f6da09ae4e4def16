"""In which phase a job is, told from its row and its files alone. Changes nothing."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import select

from engine.contract.run_dir import RunDir
from worker.db.connection import Database
from worker.db.tables import job, lane
from worker.lane.process_id import ProcessIdentity

_TAIL = 4096


class Phase(StrEnum):
    """Moments at which something is killed."""

    ENQUEUE = "enqueue"
    CLAIM = "between claim and spawn"
    BRING_UP = "bring-up"
    SAMPLING = "sampling"
    TRAINING = "training"
    CHECKPOINT = "checkpoint write"
    SETTLE = "settle"
    FOLLOW_UP = "follow-up"


_NAMED = {
    "lane-bringup": Phase.BRING_UP,
    "sampling": Phase.SAMPLING,
    "training": Phase.TRAINING,
    "checkpoint-write": Phase.CHECKPOINT,
}


class Moment(NamedTuple):
    """What the lane's holder runs, and how far it is; job 0: nothing."""

    phase: Phase
    job_id: int
    attempt: int
    engine: str | None
    holder: int
    """Process id of the drain that holds the lane; 0: nobody."""


def moment(db: Database, lane_name: str) -> Moment:
    """The lane as it is now. Between two jobs it is in its follow-up.

    A job that a dead holder left running is none of the new holder's until it has claimed it.
    """
    own = (job.c.id == lane.c.job_id) & (job.c.state == "running")
    statement = select(lane.c.holder, job.c.id, job.c.attempt, job.c.engine).where(
        lane.c.name == lane_name
    )
    with db.read() as conn:
        row = conn.execute(statement.select_from(lane.outerjoin(job, own))).first()
    holder = ProcessIdentity.parse(row.holder).pid if row and row.holder else 0
    if row is None or row.id is None:
        return Moment(Phase.FOLLOW_UP, 0, 0, None, holder)
    return Moment(
        _phase(db, row.id, row.attempt, row.engine), row.id, row.attempt, row.engine, holder
    )


def _phase(db: Database, job_id: int, attempt: int, engine: str | None) -> Phase:
    if engine is None:
        return Phase.CLAIM
    event = _last_event(RunDir(db.settings.runs_dir / str(job_id)), attempt)
    if event is None or event["type"] == "started":
        return Phase.BRING_UP
    if event["type"] == "finished":
        return Phase.SETTLE
    return _NAMED.get(str(event.get("phase")), Phase.TRAINING)


def _last_event(run: RunDir, attempt: int) -> dict[str, Any] | None:
    """The last whole event of an attempt that tells where it is."""
    try:
        with run.events.open("rb") as stream:
            stream.seek(max(0, run.events.stat().st_size - _TAIL))
            lines = stream.read().split(b"\n")
    except FileNotFoundError:
        return None
    for line in reversed(lines):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("type") in {"started", "progress", "finished"}:
            return event if event.get("attempt") == attempt else None
    return None
