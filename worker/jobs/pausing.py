"""Pause and resume of the queue: while it is paused nothing is claimed; what runs goes on.

Both leave a row in the audit of the lane from which they were asked.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from worker.database import Database
from worker.jobs.changes import announce
from worker.jobs.tables import queue_pause
from worker.lane import decisions
from worker.prepared import Prepared

MAX_WHY = 200
PAUSED, RESUMED = "paused", "resumed"


class Pause(NamedTuple):
    """Who paused the queue, when and why."""

    at: float
    actor: str
    why: str


def pause(db: Database, *, actor: str, why: str = "") -> bool:
    """Whether this call paused it; a queue that is paused keeps its first reason."""
    with db.write_tx() as conn:
        if pause_of(conn) is not None:
            return False
        why = why.strip()[:MAX_WHY]
        conn.execute(insert(queue_pause).values(id=1, at=time.time(), actor=actor, why=why))
        detail = why or "nothing more is claimed; what runs goes on"
        decisions.record(conn, db.settings.lane, PAUSED, detail, actor=actor)
        announce(conn, "board")
        return True


def resume(db: Database, *, actor: str) -> bool:
    """Whether it was paused."""
    with db.write_tx() as conn:
        if conn.execute(delete(queue_pause)).rowcount == 0:
            return False
        decisions.record(conn, db.settings.lane, RESUMED, "the queue goes on", actor=actor)
        announce(conn, "board")
        return True


_PAUSE = Prepared(select(queue_pause))


def pause_of(conn: Connection) -> Pause | None:
    """The pause in force."""
    row = _PAUSE.one_or_none(conn, {})
    return None if row is None else Pause(row.at, row.actor, row.why)
