"""The change feed as a live page reads it: what changed behind the last row that it saw."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from sqlalchemy import ColumnElement, bindparam, select

from worker.db.changes import Topic
from worker.db.connection import Database
from worker.db.tables import change


class ChangeView(BaseModel):
    """One row of the change feed."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    id: int
    topic: Topic
    job_id: int | None


def changes_after(db: Database, last_id: int, limit: int = 500) -> list[ChangeView]:
    """The change feed behind an id, oldest first. Ask `oldest_change_id` whether it is whole."""
    with db.read() as conn:
        rows = conn.execute(_CHANGES, {"after": last_id, "most": limit}).all()
    return [ChangeView(id=row.id, topic=row.topic, job_id=row.job_id) for row in rows]


def last_change_id(db: Database) -> int:
    """0 before the first change."""
    return _end(db, change.c.id.desc())


def oldest_change_id(db: Database) -> int:
    """0 before the first change. A reader whose last id is smaller than this - 1 missed some."""
    return _end(db, change.c.id.asc())


def _end(db: Database, order: ColumnElement[int]) -> int:
    with db.read() as conn:
        found = conn.execute(select(change.c.id).order_by(order).limit(1))
        return found.scalar_one_or_none() or 0


_CHANGES = (
    select(change.c.id, change.c.topic, change.c.job_id)
    .where(change.c.id > bindparam("after"))
    .order_by(change.c.id)
    .limit(bindparam("most"))
)
