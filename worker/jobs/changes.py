"""The change feed: what a live page must draw again.

One row a change, written in the transaction that made it. Only a tail is kept; a page that was
away for longer than that draws itself anew.
"""

from __future__ import annotations

from typing import Literal

from sqlalchemy import Connection, delete, insert

from worker.jobs.tables import change

Topic = Literal["job", "board", "lane"]
"""job: anything of that job · board: the list (a job came, or changed its state) · lane."""

KEPT = 10_000
"""Rows of the tail: about 40 minutes of a busy job."""


def announce(conn: Connection, topic: Topic, job_id: int | None = None) -> None:
    """Append a change; now and then drop what is older than the tail."""
    key = conn.execute(
        insert(change).values(topic=topic, job_id=job_id).returning(change.c.id)
    ).scalar_one()
    if key % 1_000 == 0:
        conn.execute(delete(change).where(change.c.id <= key - KEPT))
