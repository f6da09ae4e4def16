"""The audit of a lane: what was decided about it, by which rule, from which numbers.

Append-only. What is decided again with the same words is written once, so a queue that waits all
night leaves one row a job and not one a tick.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection, Row, bindparam, insert, select

from worker.db.changes import announce
from worker.db.connection import Database
from worker.db.tables import lane_event

DEFER = "defer"
STOP = "stop"
DRAIN = "drain"
NOTHING_MORE = "the drain ended: nothing more could be started"
"""Of a drain that no reason of its own ended."""


class DecisionView(BaseModel):
    """One decision."""

    model_config = ConfigDict(frozen=True)

    id: int
    at: float
    job_id: int | None
    actor: str
    what: str
    rule: str | None
    detail: str
    numbers: dict[str, Any]


def record(
    conn: Connection,
    lane: str,
    what: str,
    detail: str,
    *,
    actor: str,
    job_id: int | None = None,
    rule: str | None = None,
    numbers: Mapping[str, Any] | None = None,
    at: float | None = None,
) -> None:
    """Append one decision."""
    conn.execute(
        insert(lane_event).values(
            at=time.time() if at is None else at,
            lane=lane,
            job_id=job_id,
            actor=actor,
            what=what,
            rule=rule,
            detail=detail,
            numbers=dict(numbers or {}),
        )
    )
    announce(conn, "lane", job_id)


def record_once(
    conn: Connection,
    lane: str,
    what: str,
    detail: str,
    *,
    actor: str,
    job_id: int | None = None,
    rule: str | None = None,
    numbers: Mapping[str, Any] | None = None,
    at: float | None = None,
) -> None:
    """`record`, unless the newest decision about the same job, or about the lane, is the same.

    About a job the same rule is the same decision, whatever its numbers are by now.
    """
    last = _last(conn, lane, job_id)
    same_rule = last is not None and (last.what, last.rule) == (what, rule)
    if last is not None and same_rule and (job_id is not None or last.detail == detail):
        return
    record(conn, lane, what, detail, actor=actor, job_id=job_id, rule=rule, numbers=numbers, at=at)


def between(db: Database, lane: str, begin: float, end: float) -> list[DecisionView]:
    """The decisions of a stretch of time, oldest first."""
    statement = (
        select(lane_event)
        .where(lane_event.c.lane == lane, lane_event.c.at >= begin, lane_event.c.at < end)
        .order_by(lane_event.c.at, lane_event.c.id)
    )
    with db.read() as conn:
        return [DecisionView.model_validate(row) for row in conn.execute(statement).mappings()]


_NEWEST = (
    select(lane_event)
    .where(lane_event.c.lane == bindparam("of_lane"))
    .order_by(lane_event.c.at.desc(), lane_event.c.id.desc())
    .limit(bindparam("most"))
)


def newest(db: Database, lane: str, limit: int) -> list[DecisionView]:
    """The last decisions of a lane, newest first."""
    with db.read() as conn:
        rows = conn.execute(_NEWEST, {"of_lane": lane, "most": limit}).mappings()
        return [DecisionView.model_validate(row) for row in rows]


def _last(conn: Connection, lane: str, job_id: int | None) -> Row[Any] | None:
    statement = select(lane_event).order_by(lane_event.c.id.desc()).limit(1)
    if job_id is not None:
        return conn.execute(statement.where(lane_event.c.job_id == job_id)).one_or_none()
    of_lane = statement.where(lane_event.c.lane == lane, lane_event.c.job_id.is_(None))
    return conn.execute(of_lane).one_or_none()
