"""Who holds a lane, as pages, REST and the command line show it. Reads only."""

from __future__ import annotations

import time

from pydantic import BaseModel, ConfigDict
from sqlalchemy import bindparam, select

from worker.db.connection import Database
from worker.db.tables import lane

# Built once: to put a statement together costs more than to run it.
_LANE = select(lane).where(lane.c.name == bindparam("of_lane"))


class LaneView(BaseModel):
    """Who holds a lane."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    lane: str
    held: bool
    pid: int | None
    """The drain."""
    job_id: int | None
    """The job it runs; None while it waits for one."""
    since: float | None
    """Unix seconds at which the drain took the lane."""
    heartbeat_age_s: float | None


def lane_status(db: Database, name: str) -> LaneView:
    """Who holds the lane `name`; a lane nobody ever took is free."""
    with db.read() as conn:
        row = conn.execute(_LANE, {"of_lane": name}).one_or_none()
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
