"""Dependencies: a job that runs after others, and what becomes of it when one of them fails.

Freed, or cancelled with the reason, in the transaction that ends the parent; a job that ended is
followed down the whole chain. Knows no reason why a parent ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, text, update

from engine.contract.errors import ConfigError, ConfigProblem
from worker.db.changes import announce_moved
from worker.db.tables import dependency, job
from worker.queue.deferral import FREE, columns_of, deferral_of
from worker.queue.refusals import CycleError, ParentFailedError
from worker.queue.states import State, move, note

PARENT_FAILED = "PARENT_FAILED"
"""The cause of a job that was cancelled because it was to run after another one."""
_NAME_ONE = "name jobs that exist; list them with: cockpit jobs"


class IfParentFails(StrEnum):
    """What happens to a job when one that it runs after ends without success."""

    CANCEL = "cancel"
    """It is cancelled, with a reason that names the other one."""
    RUN = "run"
    """It runs all the same."""
    WAIT = "wait"
    """It waits until somebody tries the other one again and that succeeds."""


def open_parents(
    conn: Connection, parents: Iterable[int], policy: IfParentFails
) -> Mapping[int, State]:
    """Those of `parents` that a job would have to wait for, each with its state.

    Raises ConfigError for an id that no job has, ParentFailedError when the job would be cancelled
    at once.
    """
    wanted = sorted(set(parents))
    if not wanted:
        return {}
    found = {
        row.id: State(row.state)
        for row in conn.execute(select(job.c.id, job.c.state).where(job.c.id.in_(wanted)))
    }
    unknown = [
        ConfigProblem("after", parent, "is no job", _NAME_ONE)
        for parent in wanted
        if parent not in found
    ]
    if unknown:
        raise ConfigError(unknown)
    for parent, state in found.items():
        if _fails(state, policy):
            raise ParentFailedError(parent, state)
    return {parent: found[parent] for parent in wanted if not _satisfied(found[parent], policy)}


def require_original(conn: Connection, original: int | None) -> None:
    """Raises ConfigError for a job to begin from that does not exist."""
    if original is None:
        return
    if conn.execute(select(job.c.id).where(job.c.id == original)).first() is None:
        raise ConfigError([ConfigProblem("clone_of", original, "is no job", _NAME_ONE)])


def follow(conn: Connection, job_id: int, parents: Iterable[int], policy: IfParentFails) -> None:
    """Write down that a job runs after others, instead of what was written before."""
    wanted = sorted(set(parents))
    conn.execute(delete(dependency).where(dependency.c.job_id == job_id))
    if not wanted:
        return
    rows = [{"job_id": job_id, "parent_id": parent, "if_failed": policy} for parent in wanted]
    conn.execute(insert(dependency), rows)
    followed = update(job).where(job.c.id.in_(wanted))
    conn.execute(followed.values(followers=job.c.followers + 1))


def refuse_cycle(conn: Connection, job_id: int, parents: Iterable[int]) -> None:
    """Raises CycleError when one of `parents` waits, directly or not, for the job."""
    for parent in parents:
        seen, front = {parent}, {parent}
        while front:
            if job_id in front:
                raise CycleError(job_id, parent)
            above = select(dependency.c.parent_id).where(dependency.c.job_id.in_(front))
            front = set(conn.execute(above).scalars()) - seen
            seen |= front


def parents_of(conn: Connection, job_id: int) -> Sequence[Row[*tuple[Any, ...]]]:
    """(parent_id, if_failed, state) of each job that this one runs after."""
    statement = (
        select(dependency.c.parent_id, dependency.c.if_failed, job.c.state)
        .join(job, job.c.id == dependency.c.parent_id)
        .where(dependency.c.job_id == job_id)
        .order_by(dependency.c.parent_id)
    )
    return conn.execute(statement).all()


def awaited(conn: Connection, job_id: int) -> list[int]:
    """The parents that the job waits for now, whatever has become of them."""
    return list(_open(parents_of(conn, job_id)))


def still_open(conn: Connection, job_id: int) -> Mapping[int, State]:
    """The parents that the job waits for now, each with its state. Raises ParentFailedError."""
    rows = parents_of(conn, job_id)
    for row in rows:
        if _fails(State(row.state), IfParentFails(row.if_failed)):
            raise ParentFailedError(row.parent_id, row.state, retried=job_id)
    return _open(rows)


def conclude(conn: Connection, ended: Row[Any], *, actor: str) -> list[int]:
    """What the end of a job means for those that run after it. Returns the ids it cancelled.

    To be called with the row of every job that came to a final state, in the same transaction.
    """
    cancelled: list[int] = []
    front = [ended]
    while front:
        parent = front.pop()
        if not parent.followers:
            continue
        for follower in _waiting_on(conn, parent.id):
            gone = _settle_follower(conn, parent, follower, actor=actor)
            if gone is not None:
                cancelled.append(gone.id)
                front.append(gone)
    return cancelled


def reopen(conn: Connection, parent_id: int) -> None:
    """Let those that wait for a job say that it is tried again; call it where that is written."""
    for follower in _waiting_on(conn, parent_id):
        _tell(conn, follower)


def take_over(conn: Connection, parent_id: int, by: int, *, actor: str) -> None:
    """Let those that still wait for a job, and those that its end has cancelled, run after the one
    that runs it anew. To be called where the new job is written.
    """
    waiting = [one for one in waiting_on(conn, parent_id) if parent_id in awaited(conn, one)]
    cancelled = (
        select(job.c.id)
        .join(dependency, dependency.c.job_id == job.c.id)
        .where(
            dependency.c.parent_id == parent_id,
            job.c.state == State.CANCELLED,
            job.c.cause == PARENT_FAILED,
        )
    )
    moved = [*waiting, *conn.execute(cancelled).scalars()]
    if not moved:
        return
    mine = (dependency.c.job_id.in_(moved), dependency.c.parent_id == parent_id)
    conn.execute(update(dependency).where(*mine).values(parent_id=by))
    more = job.c.followers + len(moved)
    conn.execute(update(job).where(job.c.id == by).values(followers=more))
    why = f"runs after job {by}, which is job {parent_id} from the beginning"
    for one in moved:
        state = State.QUEUED if one in waiting else State.CANCELLED
        note(conn, one, state, actor=actor, why=why)
    reopen(conn, by)


def waiting_on(conn: Connection, parent_id: int) -> list[int]:
    """Queued jobs that run after a job."""
    return [row.id for row in _waiting_on(conn, parent_id)]


def _waiting_on(conn: Connection, parent_id: int) -> Sequence[Row[*tuple[Any, ...]]]:
    statement = (
        select(job.c.id, job.c.not_before, dependency.c.if_failed)
        .join(dependency, dependency.c.job_id == job.c.id)
        .where(dependency.c.parent_id == parent_id, text("state = 'queued'"))
        .order_by(job.c.id)
    )
    return conn.execute(statement).all()


def _settle_follower(
    conn: Connection, parent: Row[Any], follower: Row[*tuple[Any, ...]], *, actor: str
) -> Row[Any] | None:
    """The follower's row if it was cancelled."""
    if _fails(State(parent.state), IfParentFails(follower.if_failed)):
        error = (
            f"job {parent.id} is {parent.state}, and this one was to run after its success; "
            f"try that one again, then this one: cockpit retry {follower.id}"
        )
        return move(
            conn,
            (job.c.id == follower.id,),
            State.CANCELLED,
            source=State.QUEUED,
            actor=actor,
            why=f"job {parent.id}, which it was to follow, is {parent.state}",
            values={"cause": PARENT_FAILED, "error": error, "finished_at": time.time(), **FREE},
        )
    _tell(conn, follower)
    return None


def _tell(conn: Connection, follower: Row[*tuple[Any, ...]]) -> None:
    """What a queued job waits for, as its parents stand now."""
    parents = _open(parents_of(conn, follower.id))
    deferral = deferral_of(parents, follower.not_before, time.time())
    conn.execute(update(job).where(job.c.id == follower.id).values(columns_of(deferral)))
    announce_moved(conn, follower.id)


def _open(rows: Iterable[Row[*tuple[Any, ...]]]) -> Mapping[int, State]:
    return {
        row.parent_id: State(row.state)
        for row in rows
        if not _satisfied(State(row.state), IfParentFails(row.if_failed))
    }


def _satisfied(state: State, policy: IfParentFails) -> bool:
    return state is State.SUCCEEDED or (policy is IfParentFails.RUN and state.final)


def _fails(state: State, policy: IfParentFails) -> bool:
    return policy is IfParentFails.CANCEL and state.final and state is not State.SUCCEEDED
