"""Reordering: a queued job gets a rank between those of its new neighbours.

Neighbours of another priority hand theirs on: who is moved before a job runs before it. Ranks are
fractions; when no fraction is left between two, the ranks of that priority are dealt out anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from sqlalchemy import Connection, Row, and_, bindparam, func, or_, select, text, update

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.problems import problems_of
from worker.db.connection import Database
from worker.db.tables import job
from worker.queue.lookup import job_row
from worker.queue.refusals import WrongStateError
from worker.queue.states import State, note
from worker.queue.submission import JobNumber

_AnyRow = Row[*tuple[Any, ...]]
_QUEUED = text("state = 'queued'")


class Place(NamedTuple):
    """Where in the queue."""

    priority: int
    low: float | None
    """Rank of the job before it; None = there is none."""
    high: float
    """Rank of the job behind it."""


class Move(BaseModel):
    """Where a queued job goes: exactly one of the three."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    before: JobNumber | None = None
    """Right before this job."""
    after: JobNumber | None = None
    """Right behind this job."""
    to: Literal["top", "bottom"] | None = None
    """Before or behind all that are queued now."""


def move(db: Database, job_id: int, raw: Mapping[str, Any], *, actor: str) -> None:
    """Move a job to the place that a caller described.

    Raises ConfigError, JobNotFoundError, WrongStateError; nothing is written then.
    """
    try:
        wanted = Move.model_validate(dict(raw))
    except ValidationError as error:
        raise ConfigError(problems_of(error, Move)) from error
    if sum(value is not None for value in (wanted.before, wanted.after, wanted.to)) != 1:
        remedy = "give one of before, after and to"
        raise ConfigError([ConfigProblem("move", None, "must know one place", remedy)])
    if wanted.before is not None:
        move_before(db, job_id, wanted.before, actor=actor)
    elif wanted.after is not None:
        move_after(db, job_id, wanted.after, actor=actor)
    elif wanted.to == "top":
        move_to_top(db, job_id, actor=actor)
    else:
        move_to_bottom(db, job_id, actor=actor)


def move_before(db: Database, job_id: int, other_id: int, *, actor: str) -> None:
    """Let a queued job run right before another one.

    Raises JobNotFoundError, WrongStateError when one of the two is not queued.
    """
    _move(db, job_id, other_id, behind=False, actor=actor)


def move_after(db: Database, job_id: int, other_id: int, *, actor: str) -> None:
    """Let a queued job run right behind another one. Raises like `move_before`."""
    _move(db, job_id, other_id, behind=True, actor=actor)


def move_to_top(db: Database, job_id: int, *, actor: str) -> None:
    """Let a queued job run next. Raises JobNotFoundError, WrongStateError."""
    _move(db, job_id, None, behind=False, actor=actor)


def move_to_bottom(db: Database, job_id: int, *, actor: str) -> None:
    """Let a queued job run last of those that are queued now. Raises like `move_to_top`."""
    _move(db, job_id, None, behind=True, actor=actor)


def _move(db: Database, job_id: int, other_id: int | None, *, behind: bool, actor: str) -> None:
    with db.write_tx() as conn:
        mine = _queued_row(conn, job_id)
        if other_id == job_id:
            return
        other = _end(conn, mine, last=behind) if other_id is None else _queued_row(conn, other_id)
        if other is None:
            return  # it is alone
        where = f"{'behind' if behind else 'before'} job {other.id}"
        if other_id is None:
            where = "to the bottom" if behind else "to the top"
        place = _place(conn, mine, other, behind=behind)
        rank = _between(place)
        if rank is None:
            _deal_out(conn, place.priority)
            place = _place(conn, mine, _queued_row(conn, other.id), behind=behind)
            rank = _between(place)
            assert rank is not None, "ranks dealt out anew leave room"
        conn.execute(
            update(job).where(job.c.id == job_id).values(priority=place.priority, rank=rank)
        )
        shown = "" if place.priority == mine.priority else f", priority {place.priority}"
        note(conn, job_id, State.QUEUED, actor=actor, why=f"moved {where}{shown}")


def _queued_row(conn: Connection, job_id: int) -> _AnyRow:
    row = job_row(conn, job_id)
    if row.state != State.QUEUED:
        raise WrongStateError(job_id, row.state, "only queued jobs have a place in the queue")
    return row


def _end(conn: Connection, mine: _AnyRow, *, last: bool) -> _AnyRow | None:
    """The first or the last of the other queued jobs."""
    falling = (job.c.priority.asc(), job.c.rank.desc(), job.c.id.desc())
    rising = (job.c.priority.desc(), job.c.rank.asc(), job.c.id.asc())
    statement = (
        select(job.c.id, job.c.priority, job.c.rank)
        .where(_QUEUED, job.c.id != mine.id)
        .order_by(*(falling if last else rising))
        .limit(1)
    )
    found = conn.execute(statement).one_or_none()
    if found is None:
        return None
    # Who already stands beyond the others keeps its own priority.
    beyond = mine.priority < found.priority if last else mine.priority > found.priority
    return None if beyond else found


def _place(conn: Connection, mine: _AnyRow, other: _AnyRow, *, behind: bool) -> Place:
    """The gap before or behind `other`, as if the moved job stood nowhere."""
    peers = (_QUEUED, job.c.priority == other.priority, job.c.id != mine.id)
    earlier, later = job.c.rank < other.rank, job.c.rank > other.rank
    same = job.c.rank == other.rank
    if behind:
        next_one = conn.execute(
            select(job.c.rank)
            .where(*peers, or_(later, and_(same, job.c.id > other.id)))
            .order_by(job.c.rank, job.c.id)
            .limit(1)
        ).scalar_one_or_none()
        return Place(
            other.priority, other.rank, _behind_all(conn) if next_one is None else next_one
        )
    previous = conn.execute(
        select(job.c.rank)
        .where(*peers, or_(earlier, and_(same, job.c.id < other.id)))
        .order_by(job.c.rank.desc(), job.c.id.desc())
        .limit(1)
    ).scalar_one_or_none()
    return Place(other.priority, previous, other.rank)


def _behind_all(conn: Connection) -> float:
    """The rank that the next new job gets."""
    return float(conn.execute(select(func.max(job.c.id))).scalar_one() + 1)


def _between(place: Place) -> float | None:
    if place.low is None:
        return place.high - 1
    middle = (place.low + place.high) / 2
    return middle if place.low < middle < place.high else None


def _deal_out(conn: Connection, priority: int) -> None:
    """Equal steps from 0 to the rank of the next new job, in the order of now."""
    peers: Sequence[int] = (
        conn.execute(
            select(job.c.id)
            .where(_QUEUED, job.c.priority == priority)
            .order_by(job.c.rank, job.c.id)
        )
        .scalars()
        .all()
    )
    step = _behind_all(conn) / (len(peers) + 1)
    statement = update(job).where(job.c.id == bindparam("chosen")).values(rank=bindparam("dealt"))
    conn.execute(
        statement,
        [{"chosen": peer, "dealt": step * number} for number, peer in enumerate(peers, 1)],
    )
