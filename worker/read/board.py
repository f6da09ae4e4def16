"""The board's read model: one page of jobs as rows of a table, found by what people filter by.

Keyset pages along an index. What no index helps with (a text, a kind) is looked for among so many
jobs at a time, and the answer says how far it looked. Of a job's result only the figures that a row
shows are read: the whole of it may be large. Writes nothing.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Connection,
    Select,
    Text,
    bindparam,
    cast,
    func,
    select,
)

from worker.attempt.ingest import NO_NUMBERS, SILENT_SINCE
from worker.db.connection import Database
from worker.db.tables import job, job_tag, metric
from worker.queue.states import State
from worker.read.jobs import held_by, tags_of
from worker.screen import folded

PAGE = 50
LOOKED_THROUGH = 5_000
"""Jobs that one search for a text or a kind looks at."""
MAX_TEXT = 100
_NO_ID = 2**63 - 1
"""Larger than any."""

FIGURES = (
    "phase",
    "step",
    "max_steps",
    "pool_score",
    "last_heldout",
    "eta_s",
    "eta_at",
    SILENT_SINCE,
    "heldout_before",
    "heldout_after",
    "lift",
    "lift_ci95",
    "verdict",
    "verdict_reason",
    "benches",
    "report_n",
    "report_different",
    "lift_at_least",
    "selected_step",
    "steps",
    "seconds",
    "peak_gb",
    NO_NUMBERS,
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
    lane_s: float | None
    """Seconds for which its ended attempts held the lane; None before one ended."""
    heartbeat_at: float | None
    attempt: int
    cause: str | None
    error: str | None
    defer_reason: str | None
    defer_detail: str | None
    next_eligible_at: float | None
    figures: str
    """`FIGURES` of the live or final result, as a JSON list: rows that say the same are equal."""
    tags: tuple[str, ...]
    gates: tuple[tuple[int, float], ...]
    """(step, held-out score) of every gate on `select`, steps rising."""

    @property
    def result(self) -> Mapping[str, Any]:
        """The figures by their names."""
        return dict(zip(FIGURES, json.loads(self.figures), strict=True))


@dataclass(frozen=True)
class BoardPage:
    """Rows, newest first."""

    rows: list[BoardRow] = field(default_factory=list)
    older: int | None = None
    """`before` of the next page; None = this is the last one."""
    looked_to: int | None = None
    """A search ended at this id without filling the page; there may be more behind it."""


def board_page(db: Database, wanted: Filter, gate_series: str, limit: int = PAGE) -> BoardPage:
    """One page: its ids along the indexes, a statement a state, then what stands in those rows."""
    with db.read() as conn:
        floor = _floor(conn, wanted) if wanted.unindexed else 0
        found = sorted(_found(conn, wanted, floor, limit + 1), reverse=True)
        ids = found[:limit]
        rows = _rows(conn, ids, gate_series)
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


def _found(conn: Connection, wanted: Filter, floor: int, limit: int) -> Iterator[int]:
    every = set(wanted.states) == set(State)
    statement = _statement(of_tag=wanted.tag is not None, of_state=not every)
    if wanted.kind is not None:
        statement = statement.where(job.c.kind == wanted.kind)
    if wanted.text:
        statement = statement.add_columns(job.c.name)
    asked = {
        "below": _NO_ID if wanted.before is None else wanted.before,
        "floor": floor,
        "most": LOOKED_THROUGH if wanted.text else limit,
        **({} if wanted.tag is None else {"of_tag": wanted.tag}),
    }
    # One query a state runs along its index; a list of states would be sorted.
    for state in [None] if every else wanted.states:
        of_state = {} if state is None else {"of_state": state}
        found = conn.execute(statement, {**asked, **of_state})
        if wanted.text:
            says = _says(wanted.text)
            # Compared here: SQLite folds the case of English letters alone.
            yield from itertools.islice((row[0] for row in found if says(*row)), limit)
        else:
            yield from found.scalars()


_BELOW: BindParameter[int] = bindparam("below", type_=BigInteger)


@cache
def _statement(*, of_tag: bool, of_state: bool) -> Select[Any]:
    """Ids, newest first. Built once: to put it together costs more than to run it."""
    key = job_tag.c.job_id if of_tag else job.c.id
    statement = select(key).where(key < _BELOW, key >= bindparam("floor"))
    if of_tag:
        statement = statement.join(job, key == job.c.id).where(job_tag.c.tag == bindparam("of_tag"))
    statement = statement.where(job.c.deleted_at.is_(None))
    if of_state:
        statement = statement.where(job.c.state == bindparam("of_state"))
    return statement.order_by(key.desc()).limit(bindparam("most"))


def _says(text: str) -> Callable[[int, str], bool]:
    """Whether a job of this number and name is meant."""
    words = text.strip()[:MAX_TEXT]
    needle, number = folded(words), words.removeprefix("#")
    wanted = int(number) if number.isdecimal() and len(number) < 19 else None

    def says(job_id: int, name: str) -> bool:
        return job_id == wanted or needle in folded(name)

    return says


_IDS: BindParameter[Any] = bindparam("ids", expanding=True)
_GATES = (
    select(metric.c.job_id, metric.c.step, metric.c.value)
    .where(metric.c.job_id.in_(_IDS), metric.c.series == bindparam("of_series"))
    .order_by(metric.c.job_id, metric.c.step)
)


@cache
def _bare_rows(dialect: str) -> Select[Any]:
    figures = figures_in_result(dialect, FIGURES)
    return select(*_COLUMNS, figures.label("figures")).where(job.c.id.in_(_IDS))


def figures_in_result(dialect: str, names: Sequence[str]) -> ColumnElement[Any]:
    """Two or more fields of a result as one JSON list: read apart they cost a parser's call each,
    and the whole of a result may be large.
    """
    if dialect == "sqlite":
        return func.json_extract(job.c.result, *(f"$.{name}" for name in names))
    return cast(func.json_build_array(*(job.c.result[name] for name in names)), Text)


def gates_of(db: Database, job_id: int, series: str) -> list[tuple[int, float]]:
    """(step, score) of each gate that a run has held; the first one is of the step-0 policy."""
    with db.read() as conn:
        found = conn.execute(_GATES, {"ids": [job_id], "of_series": series})
        return [(row.step, row.value) for row in found]


def _rows(conn: Connection, ids: Sequence[int], gate_series: str) -> list[BoardRow]:
    """In the order of the ids."""
    if not ids:
        return []
    tags, held = tags_of(conn, ids), held_by(conn, ids)
    gates: dict[int, list[tuple[int, float]]] = {}
    for job_id, step, value in conn.execute(_GATES, {"ids": ids, "of_series": gate_series}):
        gates.setdefault(job_id, []).append((step, value))
    found = {row.id: row for row in conn.execute(_bare_rows(conn.dialect.name), {"ids": ids})}
    return [
        BoardRow(
            **{**found[job_id]._asdict(), "state": State(found[job_id].state)},
            lane_s=held.get(job_id),
            tags=tags.get(job_id, ()),
            gates=tuple(gates.get(job_id, ())),
        )
        for job_id in ids
    ]
