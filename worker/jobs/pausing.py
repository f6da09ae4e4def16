"""Pause and resume of the queue: while it is paused nothing is claimed; what runs goes on."""

from __future__ import annotations

import time
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from worker.database import Database
from worker.jobs.changes import announce
from worker.jobs.tables import queue_pause

MAX_WHY = 200


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
        row = {"id": 1, "at": time.time(), "actor": actor, "why": why.strip()[:MAX_WHY]}
        conn.execute(insert(queue_pause).values(row))
        announce(conn, "board")
        return True


def resume(db: Database) -> bool:
    """Whether it was paused."""
    with db.write_tx() as conn:
        if conn.execute(delete(queue_pause)).rowcount == 0:
            return False
        announce(conn, "board")
        return True


def pause_of(conn: Connection) -> Pause | None:
    """The pause in force."""
    row = conn.execute(select(queue_pause)).one_or_none()
    return None if row is None else Pause(row.at, row.actor, row.why)
