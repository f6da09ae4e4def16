"""The change feed: what a live page must draw again.

One row a change, written in the transaction that made it; those of an audit row and of a lane are
written by the database itself, in triggers. Only a tail is kept; a page that was away for longer
than that draws itself anew.
"""

from __future__ import annotations

from typing import Literal

from sqlalchemy import Connection, delete, func, insert, select

from worker.db.tables import change

Topic = Literal["job", "board", "lane"]
"""job: anything of that job · board: the list (a job came, or changed its state) · lane."""

KEPT = 10_000
"""Rows of the tail: about 40 minutes of a busy job."""

EVERY = 500
"""Old rows are looked for at one in so many changes, and at the moves of one in so many jobs."""


def announce(conn: Connection, topic: Topic, job_id: int | None = None) -> None:
    """Append a change; now and then drop what is older than the tail."""
    added = insert(change).returning(change.c.id)
    if conn.execute(added, {"topic": topic, "job_id": job_id}).scalar_one() % EVERY == 0:
        drop_old(conn)


def announce_moved(conn: Connection, job_id: int) -> None:
    """For a job whose place on the board changed without a row in the audit: both topics."""
    rows = [{"topic": topic, "job_id": job_id} for topic in ("job", "board")]
    conn.execute(insert(change), rows)
    if job_id % EVERY == 0:
        drop_old(conn)


def drop_old(conn: Connection) -> None:
    """What is older than the tail."""
    newest = select(func.max(change.c.id)).scalar_subquery()
    conn.execute(delete(change).where(change.c.id <= newest - KEPT))
