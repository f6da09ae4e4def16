"""From checkpoints of watched runs to jobs that score them.

Whoever looks for work calls `queue_evaluations` first: a checkpoint becomes (part of) a job in the
transaction that writes down which, so that a kill at any moment neither loses nor doubles one. What
has come together meanwhile is one job, the baseline first (decision 61).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Row

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.evaluate.benches import benches_problems
from engine.contract.evaluate.of_run import EVALUATION, evaluation_of, judged_as
from engine.contract.evaluate.watching import (
    Awaited,
    EvaluateConfig,
    tell_awaited,
    wanted_steps,
    weights_mark,
)
from engine.contract.problems import problems_of
from engine.contract.registry import get_kind
from engine.contract.run_dir import COMPLETE, RunDir, complete_checkpoints, step_of
from worker.db.connection import Database, DatabaseError
from worker.queue import watches
from worker.queue.lookup import job_row
from worker.queue.places import with_places
from worker.queue.states import State, note
from worker.queue.submission import submission
from worker.queue.submit import Terms, candidate, insert_job
from worker.queue.watches import Taken, Watch

_LOG = logging.getLogger(__name__)


def watch(db: Database, job_id: int, raw: Mapping[str, Any], *, actor: str) -> int:
    """Have a run's checkpoints scored as they appear, those that are there too; the watch's id.

    `raw`: what `evaluate` of a config takes. Raises JobNotFoundError, and ConfigError for benches
    that cannot be asked and for a job whose checkpoints answer none.
    """
    with db.read() as conn:
        row = job_row(conn, job_id)
    if get_kind(row.kind).evaluate is None:
        problem = f"is a job of kind {row.kind}, whose checkpoints answer no bench"
        raise ConfigError([ConfigProblem("JOB", job_id, problem, "name an rl_run")])
    told = _checked(with_places(raw, db.settings.runs_dir), row.config)
    with db.write_tx() as conn:
        made = watches.add(conn, job_id, told.model_dump(mode="json"), actor=actor)
        said = ", ".join(bench.name for bench in told.benches)
        note(conn, job_id, State(row.state), actor=actor, why=f"its checkpoints are scored: {said}")
    tell_of(db, job_id)
    return made


def stop_watching(db: Database, job_id: int, *, actor: str) -> None:
    """No more jobs for a run's checkpoints; those that are queued or run stay. Raises
    JobNotFoundError.
    """
    with db.write_tx() as conn:
        row = job_row(conn, job_id)
        for one in watches.of_run(conn, job_id):
            if one.closed_at is None:
                watches.close(conn, one, f"stopped by {actor}")
                why = "its checkpoints are scored no more"
                note(conn, job_id, State(row.state), actor=actor, why=why)
    tell_of(db, job_id)


def _checked(raw: Mapping[str, Any], run: Mapping[str, Any]) -> EvaluateConfig:
    try:
        told = EvaluateConfig.model_validate(dict(raw))
    except ValidationError as error:
        raise ConfigError(problems_of(error, EvaluateConfig)) from error
    benches = judged_as(run, told.benches)
    if found := [*benches_problems(benches)]:
        raise ConfigError(found)
    return told.model_copy(update={"benches": benches})


def any_is_watched(db: Database) -> bool:
    """Whether a look for work may find a checkpoint to score."""
    with db.read() as conn:
        return bool(watches.runs_watched(conn))


def queue_evaluations(db: Database, *, actor: str) -> list[int]:
    """A job for the checkpoints that wait, of each watch that has no job waiting already.

    Returns their ids. To look costs one read where no run is watched.
    """
    with db.read() as conn:
        runs = watches.runs_watched(conn)
    return [made for job_id in runs for made in _in_any_case(db, job_id, actor)]


def _in_any_case(db: Database, job_id: int, actor: str) -> list[int]:
    """Whatever a run's rows and files hold, the queue goes on: it is said on the run, once."""
    try:
        return [*_of_run(db, job_id, actor)]
    except DatabaseError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a row holds, the queue goes on
        _LOG.exception("job %d: its checkpoints", job_id)
        with db.read() as conn:
            row, found = job_row(conn, job_id), watches.of_run(conn, job_id)
        for one in found:
            if one.closed_at is None:
                _refuse(db, one, row, f"{type(error).__name__}: {error}"[:500], actor)
        return []


def _of_run(db: Database, job_id: int, actor: str) -> Iterator[int]:
    with db.read() as conn:
        row = job_row(conn, job_id)
        found = watches.of_run(conn, job_id)
        states = watches.states_of(conn, found)
    run = RunDir(db.settings.runs_dir / str(job_id))
    _tell(run, found, states)
    for one in found:
        if one.closed_at is not None:
            continue
        waiting = _waiting(run, one, row)
        if not waiting:
            _close_when_over(db, one, row)
        elif not any(states.get(made) == State.QUEUED for made in one.jobs):
            made = _queue(db, one, row, waiting, actor)
            yield from () if made is None else (made,)


def tell_of(db: Database, job_id: int) -> None:
    """Which checkpoints of a run are still to be scored, for its engine: before an attempt begins,
    and where it changed.
    """
    with db.read() as conn:
        found = watches.of_run(conn, job_id)
        states = watches.states_of(conn, found)
    if found:
        _tell(RunDir(db.settings.runs_dir / str(job_id)), found, states)


def _tell(run: RunDir, found: Sequence[Watch], states: Mapping[int, str]) -> None:
    """Which steps are scored, so that the others' checkpoints stay; once there is a run."""
    if not run.root.is_dir():
        return
    told = [
        Awaited(
            int(one.evaluate["every"]),
            {step for step, taken in one.steps.items() if _is_over(states, taken.job_id)},
        )
        for one in found
        if one.problem is None
    ]
    with suppress(OSError):  # a full disk: whoever writes to it next says so
        tell_awaited(run, told)


def _is_over(states: Mapping[int, str], job_id: int) -> bool:
    return job_id in states and State(states[job_id]).final


def _waiting(run: RunDir, one: Watch, row: Row[Any]) -> dict[int, str]:
    """Step and mark of the whole checkpoints that have no job yet, the baseline first."""
    there = dict(complete_checkpoints(run))
    over = State(row.state).final
    published = step_of(run.selected.resolve().name) if over else None
    steps = wanted_steps([*there], int(one.evaluate["every"]), over=over, published=published)
    marks = {step: _mark(there[step]) for step in steps}
    return {
        step: mark
        for step, mark in marks.items()
        if mark is not None and (step not in one.steps or one.steps[step].mark != mark)
    }


def _close_when_over(db: Database, one: Watch, row: Row[Any]) -> None:
    if State(row.state).final:
        with db.write_tx() as conn:
            watches.close(conn, one)


def _queue(
    db: Database, one: Watch, row: Row[Any], waiting: Mapping[int, str], actor: str
) -> int | None:
    """One job for all of them; None where another drain was faster, or they cannot be scored."""
    run = db.settings.runs_dir / str(row.id)
    said = ", ".join(map(str, waiting))
    priority = one.evaluate["priority"]
    config = evaluation_of(row.config, one.evaluate, run, [*waiting])
    wanted = submission({"kind": EVALUATION, "config": config, "priority": priority, "force": True})
    try:
        found = candidate(wanted.kind, wanted.config, f"job {row.id}: {_shortened(said)}")
    except ConfigError as error:
        if waiting.keys() <= dict(complete_checkpoints(RunDir(run))).keys():
            _refuse(db, one, row, str(error), actor)
        return None  # else one went away since: the next look does not find it
    with db.write_tx() as conn:
        if watches.get(conn, one.id).steps != one.steps:
            return None
        why = f"scores job {row.id} at step {said}"
        made = insert_job(conn, found, wanted, Terms(None, {}), actor=actor, why=why)
        watches.take(conn, one, {step: Taken(made, mark) for step, mark in waiting.items()})
        told = f"job {made} scores step {said}"
        note(conn, row.id, State(row.state), actor=actor, why=told)
        return made


def _refuse(db: Database, one: Watch, row: Row[Any], problem: str, actor: str) -> None:
    """No more jobs are made of it, and the run says why."""
    with db.write_tx() as conn:
        watches.close(conn, one, problem)
        why = f"its checkpoints are scored no more: {problem}"
        note(conn, row.id, State(row.state), actor=actor, why=why)
    tell_of(db, row.id)


_MOST_NAMED = 60


def _shortened(steps: str) -> str:
    kept = steps if len(steps) <= _MOST_NAMED else f"{steps[:_MOST_NAMED]}…"
    return f"step{'s' if ',' in steps else ''} {kept}"


def _mark(checkpoint: Path) -> str | None:
    """None for one that is gone again, or cannot be read."""
    try:
        return _mark_of(checkpoint, (checkpoint / COMPLETE).stat().st_mtime_ns)
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=10_000)
def _mark_of(checkpoint: Path, _: int) -> str:
    return weights_mark(checkpoint)
