"""Pause and resume of the queue: while it is paused nothing is claimed; what runs goes on.

Both leave a row in the audit of the lane from which they were asked.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import Connection, delete, insert, select

from engine.contract.errors import ConfigError
from engine.contract.problems import problems_of, text_problems
from worker.db import decisions
from worker.db.changes import announce
from worker.db.connection import Database
from worker.db.tables import queue_pause

MAX_WHY = 200
PAUSED, RESUMED = "paused", "resumed"


class Pause(NamedTuple):
    """Who paused the queue, when and why."""

    at: float
    actor: str
    why: str


class PauseRequest(BaseModel):
    """What is said with a pause."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    why: str = Field(default="", max_length=MAX_WHY)
    """Shown wherever a job waits."""


def pause_request(raw: Mapping[str, Any]) -> PauseRequest:
    """Raises ConfigError with every field that is wrong."""
    if unwritable := text_problems(dict(raw)):
        raise ConfigError(unwritable)
    try:
        return PauseRequest.model_validate(dict(raw))
    except ValidationError as error:
        raise ConfigError(problems_of(error, PauseRequest)) from error


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


def pause_of(conn: Connection) -> Pause | None:
    """The pause in force."""
    row = conn.execute(select(queue_pause)).one_or_none()
    return None if row is None else Pause(row.at, row.actor, row.why)
