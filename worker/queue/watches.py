"""Which runs have their checkpoints scored as they appear: rows of table `eval_watch`.

A row is one list of benches of one run, with the job that scores each step. Queues nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, RowMapping, insert, select, text, update

from worker.db.tables import UNSCORED, eval_watch, job
from worker.queue.tried import canonical_hash


class Taken(NamedTuple):
    """A checkpoint that a job scores."""

    job_id: int
    mark: str
    """Of its weights: a step that the run reached again is another checkpoint."""


class Watch(NamedTuple):
    """One list of benches of one run."""

    id: int
    job_id: int
    """The run."""
    evaluate: Mapping[str, Any]
    """An `EvaluateConfig`, resolved."""
    steps: Mapping[int, Taken]
    closed_at: float | None
    problem: str | None
    """Why no more jobs are made of it."""

    @property
    def jobs(self) -> list[int]:
        """Those that score it, in the order in which they were made."""
        return sorted({taken.job_id for taken in self.steps.values()})


def add(conn: Connection, job_id: int, evaluate: Mapping[str, Any], *, actor: str) -> int:
    """A run's checkpoints are scored on these benches from now on; the id of the row.

    The same benches again are the same row: it is opened once more.
    """
    asked = canonical_hash(evaluate["benches"])
    mine = (eval_watch.c.job_id == job_id, eval_watch.c.asked == asked)
    known = conn.execute(select(eval_watch.c.id).where(*mine)).scalar_one_or_none()
    open_ = {"evaluate": dict(evaluate), "closed_at": None, "problem": None}
    if known is not None:
        conn.execute(update(eval_watch).where(eval_watch.c.id == known).values(open_))
        return int(known)
    row: dict[str, Any] = {"job_id": job_id, "asked": asked, "steps": {}, **open_}
    row |= {"created_at": time.time(), "created_by": actor}
    made = conn.execute(insert(eval_watch).values(row)).inserted_primary_key
    assert made is not None, "a row has a key"
    return int(made[0])


def get(conn: Connection, watch_id: int) -> Watch:
    """A row that is there."""
    found = select(eval_watch).where(eval_watch.c.id == watch_id)
    return _watch(conn.execute(found).mappings().one())


def of_run(conn: Connection, job_id: int) -> list[Watch]:
    """All of one run, oldest first."""
    found = select(eval_watch).where(eval_watch.c.job_id == job_id).order_by(eval_watch.c.id)
    return [_watch(row) for row in conn.execute(found).mappings()]


def runs_watched(conn: Connection) -> Sequence[int]:
    """The runs that may yet have a checkpoint to score."""
    found = select(eval_watch.c.job_id).where(text(UNSCORED)).order_by(eval_watch.c.job_id)
    return list(dict.fromkeys(conn.execute(found).scalars()))


def take(conn: Connection, watch: Watch, steps: Mapping[int, Taken]) -> None:
    """These checkpoints have their job; to be called in the transaction that makes it."""
    told = {str(step): list(taken) for step, taken in {**watch.steps, **steps}.items()}
    conn.execute(update(eval_watch).where(eval_watch.c.id == watch.id).values(steps=told))


def close(conn: Connection, watch: Watch, problem: str | None = None) -> None:
    """No job is made of it any more: every checkpoint has one, or `problem` says why not."""
    done = {"closed_at": time.time(), "problem": problem}
    conn.execute(update(eval_watch).where(eval_watch.c.id == watch.id).values(done))


def reopen(conn: Connection, job_id: int) -> None:
    """The run goes on: it will have more checkpoints."""
    mine = update(eval_watch).where(eval_watch.c.job_id == job_id)
    conn.execute(mine.values(closed_at=None, problem=None))


def states_of(conn: Connection, watches: Sequence[Watch]) -> Mapping[int, str]:
    """State by id of the jobs that score them."""
    ids = {number for watch in watches for number in watch.jobs}
    found = select(job.c.id, job.c.state).where(job.c.id.in_(ids))
    return {row.id: row.state for row in conn.execute(found)}


def _watch(row: RowMapping) -> Watch:
    steps = {int(step): Taken(*taken) for step, taken in row["steps"].items()}
    return Watch(row["id"], row["job_id"], row["evaluate"], steps, row["closed_at"], row["problem"])
