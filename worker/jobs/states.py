"""The job state machine: which transition exists, and the audit row that each one leaves.

    queued ──claim──▶ running ──settle──▶ succeeded | failed | cancelled | aborted
       ▲                 │
       └─rescue, requeue─┘

Every change of `job.state` passes through this module. Knows no reason to make one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, insert, update

from worker.jobs.changes import announce
from worker.jobs.tables import job, job_event, state_count


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
        """Whether no transition leads out of it."""
        return not TRANSITIONS[self]


TRANSITIONS: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.QUEUED: frozenset({State.RUNNING}),
        State.RUNNING: frozenset(
            {State.QUEUED, State.SUCCEEDED, State.FAILED, State.CANCELLED, State.ABORTED}
        ),
        State.SUCCEEDED: frozenset(),
        State.FAILED: frozenset(),
        State.CANCELLED: frozenset(),
        State.ABORTED: frozenset(),
    }
)


def record_created(conn: Connection, job_id: int, *, actor: str, why: str) -> None:
    """Account for a job row that was just inserted as queued."""
    _record(conn, job_id, None, State.QUEUED, actor=actor, why=why)


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
    when it belongs to a later holder of the lane. `values` are further columns of the job.
    """
    rule = () if fence is None else (job.c.fence == fence,)
    chosen = (job.c.id == job_id, *rule)
    return move(conn, chosen, to, actor=actor, why=why, values=values) is not None


def move(
    conn: Connection,
    chosen: Sequence[ColumnElement[bool]],
    to: State,
    *,
    actor: str,
    why: str,
    values: Mapping[str, Any],
) -> Row[Any] | None:
    """`transition` for the one job that `chosen` picks; returns its row as it is now.

    Each try is one conditional UPDATE; the first that changes a row is the transition.
    """
    for source, targets in TRANSITIONS.items():
        if to not in targets:
            continue
        statement = (
            update(job)
            .where(job.c.state == source, *chosen)
            .values(state=to, **values)
            .returning(*job.c)
        )
        moved = conn.execute(statement).one_or_none()
        if moved is not None:
            _record(conn, moved.id, source, to, actor=actor, why=why)
            return moved
    return None


def _record(
    conn: Connection, job_id: int, source: State | None, to: State, *, actor: str, why: str
) -> None:
    conn.execute(
        insert(job_event).values(
            job_id=job_id, at=time.time(), actor=actor, from_state=source, to_state=to, why=why
        )
    )
    for state, difference in ((source, -1), (to, +1)):
        conn.execute(
            update(state_count)
            .where(state_count.c.state == state)
            .values(n=state_count.c.n + difference)
        )
    announce(conn, "job", job_id)
    announce(conn, "board", job_id)
