"""The board's read model: one page of jobs as rows of a table, found by what people filter by.

Keyset pages along an index. What no index helps with (a text, a kind) is looked for among so many
jobs at a time, and the answer says how far it looked. Of a job's result only the figures that a row
shows are read: the whole of it may be large. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, func, or_, select

from worker.database import Database
from worker.jobs.states import State
from worker.jobs.tables import job, job_tag, metric

PAGE = 50
LOOKED_THROUGH = 5_000
"""Jobs that one search for a text or a kind looks at."""
MAX_TEXT = 100

FIGURES = (
    "phase",
    "step",
    "max_steps",
    "pool_score",
    "last_heldout",
    "eta_s",
    "heldout_before",
    "heldout_after",
    "lift",
    "lift_ci95",
    "verdict",
    "report_n",
    "selected_step",
    "steps",
    "seconds",
    "peak_gb",
)
"""Of `result_json`, what a row shows."""

_COLUMNS = (
    job.c.id,
    job.c.kind,
    job.c.name,
    job.c.state,
    job.c.priority,
    job.c.created_at,
    job.c.started_at,
    job.c.finished_at,
    job.c.heartbeat_at,
    job.c.attempt,
    job.c.cause,
    job.c.error,
    job.c.defer_reason,
    job.c.defer_detail,
    job.c.next_eligible_at,
)
_PICKED = tuple(job.c.result[name].label(f"result_{name}") for name in FIGURES)


@dataclass(frozen=True)
class Filter:
    """What the rows are narrowed by; None = by nothing."""

    states: Sequence[State] = tuple(State)
    kind: str | None = None
    tag: str | None = None
    text: str | None = None
    """Part of a name, or a job's number."""
    before: int | None = None
    """Rows with a smaller id."""

    @property
    def unindexed(self) -> bool:
        """Whether rows have to be looked through one by one."""
        return self.kind is not None or bool(self.text)


@dataclass(frozen=True)
class BoardRow:
    """One job. Times are Unix seconds."""

    id: int
    kind: str
    name: str
    state: State
    priority: int
    created_at: float
    started_at: float | None
    finished_at: float | None
    heartbeat_at: float | None
    attempt: int
    cause: str | None
    error: str | None
    defer_reason: str | None
    defer_detail: str | None
    next_eligible_at: float | None
    result: Mapping[str, Any]
    """`FIGURES` of the live or final result."""
    tags: Sequence[str]
    gates: Sequence[tuple[int, float]]
    """(step, held-out score) of every gate on `select`, steps rising."""


@dataclass(frozen=True)
class BoardPage:
    """Rows, newest first."""

    rows: list[BoardRow] = field(default_factory=list)
    older: int | None = None
    """`before` of the next page; None = this is the last one."""
    looked_to: int | None = None
    """A search ended at this id without filling the page; there may be more behind it."""


def board_page(db: Database, wanted: Filter, gate_series: str, limit: int = PAGE) -> BoardPage:
    """One page. Four statements, and one more for each further state."""
    with db.read() as conn:
        floor = _floor(conn, wanted) if wanted.unindexed else 0
        found = sorted(_found(conn, wanted, floor, limit + 1), key=lambda row: -int(row.id))
        shown = found[:limit]
        ids = [row.id for row in shown]
        tags, gates = _tags(conn, ids), _gates(conn, ids, gate_series)
    rows = [_row(row, tags.get(row.id, []), gates.get(row.id, [])) for row in shown]
    if len(found) > limit:
        return BoardPage(rows, older=ids[-1])
    if floor > 1:
        return BoardPage(rows, older=floor, looked_to=floor)
    return BoardPage(rows)


def _floor(conn: Connection, wanted: Filter) -> int:
    """The smallest id that this search looks at."""
    top = wanted.before
    if top is None:
        top = (conn.execute(select(func.max(job.c.id))).scalar_one() or 0) + 1
    return max(1, top - LOOKED_THROUGH)


def _found(conn: Connection, wanted: Filter, floor: int, limit: int) -> Iterator[Row[Any]]:
    statement = _statement(wanted, floor).limit(limit)
    if set(wanted.states) == set(State):
        yield from conn.execute(statement)
        return
    # One query a state runs along its index; a list of states would be sorted.
    for state in wanted.states:
        yield from conn.execute(statement.where(job.c.state == state))


def _statement(wanted: Filter, floor: int) -> Select[Any]:
    key = job.c.id if wanted.tag is None else job_tag.c.job_id
    statement = select(*_COLUMNS, *_PICKED).order_by(key.desc())
    if wanted.tag is not None:
        statement = statement.join(job_tag, key == job.c.id).where(job_tag.c.tag == wanted.tag)
    if wanted.before is not None:
        statement = statement.where(key < wanted.before)
    if wanted.kind is not None:
        statement = statement.where(job.c.kind == wanted.kind)
    if wanted.text:
        statement = statement.where(_says(wanted.text))
    return statement.where(key >= floor) if floor > 1 else statement


def _says(words: str) -> ColumnElement[bool]:
    words = words.strip()[:MAX_TEXT]
    named = job.c.name.icontains(words, autoescape=True)
    number = words.removeprefix("#")
    if number.isdecimal() and len(number) < 19:
        return or_(named, job.c.id == int(number))
    return named


def _tags(conn: Connection, ids: Sequence[int]) -> dict[int, list[str]]:
    statement = select(job_tag.c.job_id, job_tag.c.tag).where(job_tag.c.job_id.in_(ids))
    found: dict[int, list[str]] = {}
    for job_id, tag in conn.execute(statement.order_by(job_tag.c.job_id, job_tag.c.tag)):
        found.setdefault(job_id, []).append(tag)
    return found


def _gates(conn: Connection, ids: Sequence[int], series: str) -> dict[int, list[tuple[int, float]]]:
    """The gates of all rows at once."""
    statement = (
        select(metric.c.job_id, metric.c.step, metric.c.value)
        .where(metric.c.job_id.in_(ids), metric.c.series == series)
        .order_by(metric.c.job_id, metric.c.step)
    )
    found: dict[int, list[tuple[int, float]]] = {}
    for job_id, step, value in conn.execute(statement):
        found.setdefault(job_id, []).append((step, value))
    return found


def _row(row: Row[Any], tags: Sequence[str], gates: Sequence[tuple[int, float]]) -> BoardRow:
    known = row._mapping  # noqa: SLF001 - SQLAlchemy's public name for a row's columns
    result = {name: known[f"result_{name}"] for name in FIGURES}
    columns = {column.name: known[column] for column in _COLUMNS}
    return BoardRow(**columns | {"state": State(row.state)}, result=result, tags=tags, gates=gates)
