"""What is scored of a run whose checkpoints are watched: its jobs, and their scores in order.

Writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, select

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.scores import BenchScore
from worker.db.connection import Database
from worker.db.tables import eval_score, job
from worker.queue import watches
from worker.queue.lookup import job_row
from worker.queue.states import State
from worker.queue.watches import Watch
from worker.read.scores.leaderboard import ref_of


class Score(NamedTuple):
    """One of a checkpoint on a bench."""

    ref: str
    job_id: int
    """Which scored it."""
    said: BenchScore
    before: str | None
    """The baseline's score on the same rows; None for the baseline itself, and without one."""


class Evaluation(NamedTuple):
    """A job that scores checkpoints of the run."""

    job_id: int
    state: State
    result: Mapping[str, Any]
    steps: Sequence[int]


class Watching(NamedTuple):
    """How far the scores of a run are."""

    run_id: int
    run_state: State
    jobs: Sequence[Evaluation]
    scores: Sequence[Score]
    problems: Sequence[str]
    """Why benches are asked no more."""
    over: bool
    """Every checkpoint has its scores, and no other will come."""


def watching(db: Database, job_id: int) -> Watching:
    """Raises JobNotFoundError, and ConfigError for a run that nobody watches."""
    with db.read() as conn:
        run = job_row(conn, job_id)
        found = watches.of_run(conn, job_id)
        if not found:
            problem, remedy = "is not watched", "name benches with --bench"
            raise ConfigError([ConfigProblem("JOB", job_id, problem, remedy)])
        made = _jobs(conn, found)
        scored = _scores(conn, job_id, [one.job_id for one in made])
    closed = all(one.closed_at is not None for one in found)
    return Watching(
        job_id,
        State(run.state),
        made,
        scored,
        [one.problem for one in found if one.problem is not None],
        over=closed and all(one.state.final for one in made),
    )


def evaluations_of(db: Database, job_id: int) -> list[Evaluation]:
    """The jobs that score a run's checkpoints as they appear; none where nobody watches it."""
    with db.read() as conn:
        return _jobs(conn, watches.of_run(conn, job_id))


def _jobs(conn: Connection, found: Sequence[Watch]) -> list[Evaluation]:
    steps: dict[int, list[int]] = {}
    for one in found:
        for step, taken in one.steps.items():
            steps.setdefault(taken.job_id, []).append(step)
    rows = select(job.c.id, job.c.state, job.c.result).where(job.c.id.in_(steps))
    return [
        Evaluation(row.id, State(row.state), row.result or {}, sorted(steps[row.id]))
        for row in conn.execute(rows.order_by(job.c.id))
    ]


def _scores(conn: Connection, run_id: int, made: Sequence[int]) -> list[Score]:
    c = eval_score.c
    found = select(eval_score).where(c.run == run_id, c.job_id.in_(made))
    rows = conn.execute(found.order_by(c.job_id, c.job_step, c.step, c.key)).all()
    baseline = {row.measure: ref_of(row) for row in rows if row.step == 0}
    return [_score(row, None if row.step == 0 else baseline.get(row.measure)) for row in rows]


def _score(row: Row[Any], before: str | None) -> Score:
    return Score(ref_of(row), row.job_id, BenchScore.model_validate(row.body), before)
