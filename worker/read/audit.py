"""The audit of the whole house: what happened to jobs, and what was decided about the lane.

Two tables that are only appended to, read as one list, newest first. A page goes on behind the last
entry of each table that it showed. Where no index helps (a word, an actor, a kind of event) so many
entries of each are looked through at a time, and the answer says so. Writes nothing.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, func, select

from worker.db.connection import Database
from worker.db.tables import job_event, lane_event
from worker.queue.states import State
from worker.screen import folded

PAGE = 50
LOOKED_THROUGH = 5_000
"""Entries of each table that one search looks at."""
ENQUEUED, CHANGED = "enqueued", "changed"
MOVES = (ENQUEUED, CHANGED, *State)
"""What may happen to a job; every other word is a decision about the lane."""


class Place(NamedTuple):
    """How far a page of the list went: the last id of each table that was shown."""

    job: int
    lane: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`123.45`. Raises ValueError."""
        job, lane = (int(part) for part in text.split("."))
        return cls(job, lane)

    def __str__(self) -> str:
        return f"{self.job}.{self.lane}"


@dataclass(frozen=True)
class AuditFilter:
    """What the list is narrowed by; None = by nothing."""

    actor: str | None = None
    """How the actor's name begins: `cli`, `browser`, `drain`."""
    job_id: int | None = None
    what: str | None = None
    """One of `MOVES`, or a decision's word."""
    text: str | None = None
    before: Place | None = None

    @property
    def unindexed(self) -> bool:
        """Whether entries have to be looked through one by one."""
        return self.job_id is None and any((self.actor, self.what, self.text))


@dataclass(frozen=True)
class Entry:
    """One line of the audit."""

    key: str
    """Its table's letter and its id."""
    at: float
    actor: str
    what: str
    job_id: int | None
    detail: str
    came_from: State | None = None
    """The state that a job left."""
    lane: str | None = None
    rule: str | None = None
    numbers: dict[str, Any] | None = None


@dataclass(frozen=True)
class AuditPage:
    """Entries, newest first."""

    entries: list[Entry]
    older: Place | None
    """Where the next page begins; None = this is the last one."""
    looked_through: bool
    """The search ended before the page was full; there may be more behind it."""


def audit_page(db: Database, wanted: AuditFilter, limit: int = PAGE) -> AuditPage:
    """One page of both tables."""
    with db.read() as conn:
        top = wanted.before or Place(_top(conn, job_event), _top(conn, lane_event))
        floor = Place(0, 0)
        if wanted.unindexed:
            floor = Place(*(max(0, place - LOOKED_THROUGH - 1) for place in top))
        moves = _moves(conn, wanted, top.job, floor.job, limit + 1)
        decided = _decided(conn, wanted, top.lane, floor.lane, limit + 1)
    # A merge and no sort: inside a table the ids decide, whatever the clock did.
    merged = list(heapq.merge(moves, decided, key=lambda entry: -entry.at))
    shown = merged[:limit]
    if len(merged) > limit:
        return AuditPage(shown, _behind(shown, top), looked_through=False)
    further = any(place > 0 for place in floor)
    return AuditPage(shown, Place(floor.job + 1, floor.lane + 1) if further else None, further)


def decisions_known(db: Database, limit: int = 200) -> list[str]:
    """The words among the newest decisions, for the filter to offer."""
    newest = select(lane_event.c.what).order_by(lane_event.c.id.desc()).limit(limit).subquery()
    with db.read() as conn:
        return sorted(conn.execute(select(newest.c.what).distinct()).scalars())


def _top(conn: Connection, table: Table) -> int:
    return (conn.execute(select(func.max(table.c.id))).scalar_one() or 0) + 1


def _behind(shown: Sequence[Entry], top: Place) -> Place:
    """The last id of each table that was shown."""
    last = {"j": top.job, "l": top.lane}
    for entry in shown:
        last[entry.key[0]] = min(last[entry.key[0]], int(entry.key[1:]))
    return Place(last["j"], last["l"])


def _moves(
    conn: Connection, wanted: AuditFilter, before: int, floor: int, limit: int
) -> list[Entry]:
    columns = job_event.c
    statement = _narrowed(job_event, wanted, before, floor)
    if wanted.what == ENQUEUED:
        statement = statement.where(columns.from_state.is_(None))
    elif wanted.what == CHANGED:
        statement = statement.where(columns.from_state == columns.to_state)
    elif wanted.what in MOVES:
        moved = columns.from_state != columns.to_state
        statement = statement.where(columns.to_state == wanted.what, moved)
    elif wanted.what is not None:
        return []
    return [
        Entry(
            key=f"j{row.id}",
            at=row.at,
            actor=row.actor,
            what=_move(row.from_state, row.to_state),
            job_id=row.job_id,
            detail=row.why,
            came_from=State(row.from_state) if row.from_state else None,
        )
        for row in _said(conn, statement, wanted.text, limit)
    ]


def _move(before: str | None, after: str) -> str:
    if before is None:
        return ENQUEUED
    return CHANGED if before == after else after


def _decided(
    conn: Connection, wanted: AuditFilter, before: int, floor: int, limit: int
) -> list[Entry]:
    columns = lane_event.c
    if wanted.what in MOVES:
        return []
    statement = _narrowed(lane_event, wanted, before, floor)
    if wanted.what is not None:
        statement = statement.where(columns.what == wanted.what)
    return [
        Entry(
            key=f"l{row.id}",
            at=row.at,
            actor=row.actor,
            what=row.what,
            job_id=row.job_id,
            detail=row.detail,
            lane=row.lane,
            rule=row.rule,
            numbers=row.numbers,
        )
        for row in _said(conn, statement, wanted.text, limit)
    ]


def _said(
    conn: Connection, statement: Select[Any], text: str | None, limit: int
) -> Iterator[Row[Any]]:
    """Rows that say these words in whatever case; compared here, for SQLite folds that of English
    letters alone.
    """
    if not text:
        yield from conn.execute(statement.limit(limit))
        return
    needle = folded(text)
    rows = (
        row
        for row in conn.execute(statement)
        if any(needle in folded(getattr(row, name, None) or "") for name in _WORDS)
    )
    yield from itertools.islice(rows, limit)


_WORDS = ("why", "detail", "rule")
"""Columns of either table that a text is looked for in."""


def _narrowed(table: Table, wanted: AuditFilter, before: int, floor: int) -> Select[Any]:
    """What both tables are narrowed by, along the primary key or the index of a job."""
    conditions: list[ColumnElement[bool]] = [table.c.id < before]
    if floor:
        conditions.append(table.c.id > floor)
    if wanted.job_id is not None:
        conditions.append(table.c.job_id == wanted.job_id)
    if wanted.actor:
        conditions.append(table.c.actor.startswith(wanted.actor, autoescape=True))
    return select(table).where(*conditions).order_by(table.c.id.desc())
