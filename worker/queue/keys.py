"""Idempotency keys: the same request, sent again under its key, is answered by the same job.

A key belongs to one request for ever. Knows no header and no door.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from sqlalchemy import Connection, insert, select

from worker.db.tables import idempotency
from worker.queue.refusals import KeyReusedError


class Owner(NamedTuple):
    """What a key brought forth: one job, or the jobs of a sweep."""

    job_id: int | None
    sweep_id: int | None

    def __str__(self) -> str:
        return f"job {self.job_id}" if self.job_id else f"sweep {self.sweep_id}"


def owner_of(conn: Connection, key: str, body_hash: str) -> Owner | None:
    """What the key brought forth before. Raises KeyReusedError when it was another request."""
    statement = select(idempotency).where(idempotency.c.key == key)
    row = conn.execute(statement).one_or_none()
    if row is None:
        return None
    owner = Owner(row.job_id, row.sweep_id)
    if row.body_hash != body_hash:
        raise KeyReusedError(key, str(owner))
    return owner


def remember(conn: Connection, key: str, body_hash: str, owner: Owner) -> None:
    """Write down whose key it is, in the transaction that made the job."""
    row = {"key": key, "body_hash": body_hash, "created_at": time.time(), **owner._asdict()}
    conn.execute(insert(idempotency).values(row))
