"""The job state machine: which transition exists, and the audit row that each one leaves.

    queued ──claim──▶ running ──settle──▶ succeeded | failed | cancelled | aborted
     ▲ │ ▲               │                                 │          │         │
     │ │ └─rescue, requeue                                 └──────────┴─────────┤
     │ └──cancel──▶ cancelled                                                   │
     └──retry───────────────────────────────────────────────────────────────────┘

Every change of `job.state` passes through this module. Knows no reason to make one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    bindparam,
    insert,
    literal_column,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate

from worker.db import changes
from worker.db.tables import job, job_event


class State(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ABORTED = "aborted"

    @property
    def final(self) -> bool:
        """Whether it is over, unless a person tries it again."""
        return self not in {State.QUEUED, State.RUNNING}

    @property
    def retryable(self) -> bool:
        """Whether it is over and can be tried again."""
        return self.final and bool(TRANSITIONS[self])


TRANSITIONS: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.QUEUED: frozenset({State.RUNNING, State.CANCELLED}),
        State.RUNNING: frozenset(
            {State.QUEUED, State.SUCCEEDED, State.FAILED, State.CANCELLED, State.ABORTED}
        ),
        State.SUCCEEDED: frozenset(),
        State.FAILED: frozenset({State.QUEUED}),
        State.CANCELLED: frozenset({State.QUEUED}),
        State.ABORTED: frozenset({State.QUEUED}),
    }
)


def record_created(conn: Connection, job_id: int, *, actor: str, why: str) -> None:
    """Account for a job row that was just inserted as queued."""
    _record(conn, job_id, None, State.QUEUED, actor=actor, why=why)


def note(conn: Connection, job_id: int, state: State, *, actor: str, why: str) -> None:
    """An audit row for what a person changed without moving the job: its place, its conditions."""
    _record(conn, job_id, state, state, actor=actor, why=why)


def transition(
    conn: Connection,
    job_id: int,
    to: State,
    *,
    actor: str,
    why: str,
    fence: int | None = None,
    **values: Any,
) -> bool:
    """Move one job to `to` and write its audit, counter and change rows beside it.

    False, and nothing written, when the job is in no state that leads to `to`, or (with `fence`)
    when it does not run or belongs to a later holder of the lane. `values` are further columns.
    """
    chosen = (job.c.id == job_id,)
    return move(conn, chosen, to, actor=actor, why=why, fence=fence, values=values) is not None


def move(
    conn: Connection,
    chosen: Sequence[ColumnElement[bool]],
    to: State,
    *,
    actor: str,
    why: str,
    values: Mapping[str, Any],
    fence: int | None = None,
    source: State | None = None,
) -> Row[Any] | None:
    """`transition` for the one job that `chosen` picks; returns its row as it is now.

    `source` leaves one of the states that lead to `to`; a fence leaves running alone. Each try is
    one conditional UPDATE; the first that changes a row is the transition.
    """
    if fence is not None:
        chosen = (*chosen, job.c.fence == fence)
        source = State.RUNNING
    for origin, targets in TRANSITIONS.items():
        if to not in targets or source not in {None, origin}:
            continue
        statement = moving(origin, *chosen, values=values)
        moved: Row[Any] | None = apply(conn, statement, origin, to, {}, actor=actor, why=why)
        if moved is not None:
            return moved
    return None


def moving(
    source: State,
    *chosen: ColumnElement[bool],
    values: Mapping[str, Any],
    returning: Sequence[Column[Any]] = tuple(job.c),
) -> ReturningUpdate[Any]:
    """The conditional UPDATE of a transition, for `apply`; returns the id and what is asked for.

    A module that moves many jobs builds it once, with `bindparam`.
    """
    return (
        update(job)
        .where(job.c.state == _literal(source), *chosen)
        .values(state=bindparam("to_state"), **values)
        .returning(*returning)
    )


def _literal(state: State) -> ColumnElement[str]:
    """In the text: SQLite plans a statement anew whenever a value comes that could decide whether
    a partial index serves.
    """
    return literal_column(f"'{state}'")


def apply(
    conn: Connection,
    statement: ReturningUpdate[Any],
    source: State,
    to: State,
    parameters: Mapping[str, Any],
    *,
    actor: str,
    why: str,
) -> Any:
    """Make the transition that `moving` built; returns the row as it is now.

    None, and nothing written, when no row fits.
    """
    if to not in TRANSITIONS[source]:
        raise ValueError(f"no transition leads from {source} to {to}")
    moved = conn.execute(statement, {"to_state": to, **parameters}).one_or_none()
    if moved is not None:
        _record(conn, moved.id, source, to, actor=actor, why=why)
    return moved


_RECORD = insert(job_event)


def _record(
    conn: Connection, job_id: int, source: State | None, to: State, *, actor: str, why: str
) -> None:
    """The audit row; the database keeps the counters and announces it."""
    row = {
        "job_id": job_id,
        "at": time.time(),
        "actor": actor,
        "from_state": source,
        "to_state": to,
        "why": why,
    }
    conn.execute(_RECORD, row)
    if job_id % changes.EVERY == 0:
        changes.drop_old(conn)
