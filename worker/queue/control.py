"""What people do to jobs that exist: cancel, put back, try again, change.

A running job is never touched itself: its supervisor finds the request (the sentinel in the
attempt's directory, at once, and a column at its next heartbeat) and the engine checkpoints. Knows
no process.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from sqlalchemy import Connection, Row, delete, insert, select, update

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.problems import problems_of, text_problems
from engine.contract.run_dir import Abort, AbortReason, RunDir, complete_checkpoints
from worker.clock.moments import start_time
from worker.db.connection import Database
from worker.db.tables import job, job_tag
from worker.db.zone import lane_zone
from worker.queue import dependencies, watches
from worker.queue.deferral import FREE, columns_of, deferral_of
from worker.queue.dependencies import IfParentFails
from worker.queue.lookup import job_row, jobs_of_sweep, sweep_row
from worker.queue.refusals import WrongStateError
from worker.queue.states import State, move, note
from worker.queue.submission import (
    JobNumber,
    Priority,
    StartTime,
    checked_name,
    checked_tags,
    submission,
)
from worker.queue.submit import Terms, candidate, insert_job

MAX_NOTE = 2_000
OF_ANY_STATE = frozenset({"tags", "name", "note", "archived"})
"""What may be changed of a job that is not queued any more."""


class Done(StrEnum):
    """What came of a request to stop a job."""

    AT_ONCE = "at once"
    """It was queued; it is over now."""
    ASKED = "asked"
    """It runs; its engine writes a checkpoint and ends."""
    BEFORE = "before"
    """The same was asked before."""


def cancel(db: Database, job_id: int, *, actor: str) -> Done:
    """End a job for good: a queued one now, a running one at its next checkpoint.

    Jobs that run after it are cancelled or freed as they asked for. Works on a full disk. Raises
    JobNotFoundError, WrongStateError when it is over already.
    """

    def write() -> Done:
        with db.write_tx() as conn:
            row = job_row(conn, job_id)
            match State(row.state):
                case State.QUEUED:
                    _cancel_queued(conn, job_id, actor=actor)
                    return Done.AT_ONCE
                case State.RUNNING:
                    return _ask(db, conn, row, AbortReason.CANCEL, actor=actor)
                case State.CANCELLED:
                    return Done.BEFORE
                case over:
                    raise WrongStateError(job_id, over, "there is nothing left to cancel")

    return db.urgently(write)


def cancel_sweep(db: Database, sweep_id: int, *, actor: str) -> dict[int, Done]:
    """Cancel every job of a sweep that is not over. Returns what came of each.

    Raises SweepNotFoundError.
    """
    done: dict[int, Done] = {}
    with db.read() as conn:
        job_ids = jobs_of_sweep(conn, sweep_row(conn, sweep_id).id)
    for job_id in job_ids:
        # One that ended meanwhile has nothing left to cancel.
        with contextlib.suppress(WrongStateError):
            done[job_id] = cancel(db, job_id, actor=actor)
    return done


def requeue(db: Database, job_id: int, *, actor: str) -> Done:
    """Let a running job write a checkpoint and go back to its place in the queue.

    Works on a full disk. Raises JobNotFoundError, WrongStateError.
    """

    def write() -> Done:
        with db.write_tx() as conn:
            row = job_row(conn, job_id)
            if row.state == State.QUEUED:
                return Done.BEFORE
            if row.state != State.RUNNING:
                again = f"try it again with: cockpit retry {job_id}"
                remedy = again if State(row.state).retryable else _instead_of_retry(row)
                raise WrongStateError(job_id, row.state, remedy)
            if row.stop_requested == AbortReason.CANCEL:
                raise WrongStateError(job_id, "being cancelled", "wait for its end, then retry it")
            return _ask(db, conn, row, AbortReason.REQUEUE, actor=actor)

    return db.urgently(write)


def retry(db: Database, job_id: int, *, actor: str) -> None:
    """Queue a job that did not succeed once more; it resumes from its last checkpoint, if any.

    Raises JobNotFoundError, WrongStateError, ParentFailedError.
    """
    resumes = bool(complete_checkpoints(RunDir(db.settings.runs_dir / str(job_id))))
    begins = "from its last checkpoint" if resumes else "from the beginning"
    with db.write_tx() as conn:
        row = job_row(conn, job_id)
        if row.deleted_at is not None:
            raise WrongStateError(job_id, "deleted", f"run it anew: cockpit retry {job_id} --fresh")
        if not State(row.state).retryable:
            raise WrongStateError(job_id, row.state, _instead_of_retry(row))
        parents = dependencies.still_open(conn, job_id)
        move(
            conn,
            (job.c.id == job_id,),
            State.QUEUED,
            actor=actor,
            why=f"tried again, {begins}",
            values={
                "finished_at": None,
                "cause": None,
                "error": None,
                "rescues": 0,
                "oom_deferred": 0,
                "pruned_at": None,
                **columns_of(deferral_of(parents, row.not_before, time.time())),
            },
        )
        dependencies.reopen(conn, job_id)
        watches.reopen(conn, job_id)


def retry_fresh(db: Database, job_id: int, *, actor: str) -> int:
    """Queue a new job with the settings, name, tags and priority of one that is over. Jobs that
    still wait for the old one wait for the new one from then on.

    Returns its id. Raises JobNotFoundError, WrongStateError, ConfigError when the settings do not
    hold any more.
    """
    with db.read() as conn:
        row = job_row(conn, job_id)
        tags = conn.execute(select(job_tag.c.tag).where(job_tag.c.job_id == job_id)).scalars().all()
    if not State(row.state).final:
        raise WrongStateError(job_id, row.state, _instead_of_retry(row))
    wanted = submission(
        {
            "kind": row.kind,
            "config": row.config,
            "priority": row.priority,
            "tags": list(tags),
            "clone_of": job_id,
            "force": True,
        }
    )
    found = candidate(wanted.kind, wanted.config, row.name)
    with db.write_tx() as conn:
        made = insert_job(
            conn,
            found,
            wanted,
            Terms(None, {}),
            actor=actor,
            why=f"job {job_id} from the beginning",
        )
        dependencies.take_over(conn, job_id, made, actor=actor)
        return made


def followers_of(db: Database, job_id: int) -> list[int]:
    """Queued jobs that run after this one."""
    with db.read() as conn:
        return dependencies.waiting_on(conn, job_id)


class Edit(BaseModel):
    """Changes to a queued job; what is not given stays."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    priority: Priority = 0
    """Higher runs first."""
    not_before: StartTime = None
    """Earliest start; null = at once."""
    after: list[JobNumber] = Field(default=[], max_length=100)
    """Jobs that must have ended before, instead of those of now."""
    if_parent_fails: IfParentFails = IfParentFails.CANCEL
    """When one of those ends without success: cancel this one, run it all the same, or wait."""
    tags: list[str] = Field(default=[], max_length=20)
    """Words to find it by, instead of those of now; of a job in any state."""
    name: str | None = None
    """What people call it, instead of its name of now; of a job in any state."""
    note: str | None = Field(default=None, max_length=MAX_NOTE)
    """What a person writes about it; null takes it away. Of a job in any state."""
    archived: bool = Field(default=False, strict=True)
    """Leave it out of lists of runs, or show it there again; of a job that is over."""

    _plain_tags = field_validator("tags")(checked_tags)
    _plain_name = field_validator("name")(checked_name)


def edit(db: Database, job_id: int, raw: Mapping[str, Any], *, actor: str) -> None:
    """Change what a queued job waits for, its priority or its tags.

    Raises ConfigError, JobNotFoundError, WrongStateError, CycleError, ParentFailedError; nothing
    is written then.
    """
    wanted = _edit(raw)
    given = wanted.model_fields_set
    if not given:
        return
    not_before = start_time(wanted.not_before, time.time(), partial(lane_zone, db))
    with db.write_tx() as conn:
        row = job_row(conn, job_id)
        if row.state != State.QUEUED and given - OF_ANY_STATE:
            raise WrongStateError(job_id, row.state, "only a queued job can be changed")
        if wanted.archived and not State(row.state).final:
            raise WrongStateError(job_id, row.state, "only a run that is over can be archived")
        _describe(conn, job_id, wanted)
        if "tags" in given:
            _replace_tags(conn, job_id, wanted.tags)
        if given & {"after", "if_parent_fails"}:
            _replace_parents(conn, job_id, wanted)
        if row.state == State.QUEUED:
            starts = not_before if "not_before" in given else row.not_before
            parents = dependencies.still_open(conn, job_id)
            values = {
                "priority": wanted.priority if "priority" in given else row.priority,
                "not_before": starts,
                **columns_of(deferral_of(parents, starts, time.time())),
            }
            conn.execute(update(job).where(job.c.id == job_id).values(values))
        changed = ", ".join(f"{name}={getattr(wanted, name)}" for name in sorted(given))
        note(conn, job_id, State(row.state), actor=actor, why=f"changed: {changed}")


def _describe(conn: Connection, job_id: int, wanted: Edit) -> None:
    """What people say of a job, and whether they put it away."""
    given = wanted.model_fields_set
    values: dict[str, Any] = {}
    if wanted.name is not None:
        values["name"] = wanted.name
    if "note" in given:
        values["note"] = (wanted.note or "").strip() or None
    if "archived" in given:
        values["archived_at"] = time.time() if wanted.archived else None
    if values:
        conn.execute(update(job).where(job.c.id == job_id).values(values))


def _edit(raw: Mapping[str, Any]) -> Edit:
    if unwritable := text_problems(dict(raw)):
        raise ConfigError(unwritable)
    try:
        return Edit.model_validate(dict(raw))
    except ValidationError as error:
        raise ConfigError(problems_of(error, Edit)) from error


def _cancel_queued(conn: Connection, job_id: int, *, actor: str) -> None:
    moved = move(
        conn,
        (job.c.id == job_id,),
        State.CANCELLED,
        source=State.QUEUED,
        actor=actor,
        why="cancelled before it ran",
        values={"finished_at": time.time(), "cause": None, "error": None, **FREE},
    )
    assert moved is not None, "it was queued in this transaction"
    dependencies.conclude(conn, moved, actor=actor)


def _ask(db: Database, conn: Connection, row: Row[Any], reason: AbortReason, *, actor: str) -> Done:
    """Column first, then the file: whichever the supervisor looks at next, it finds the request.

    The file only hastens it: on a full disk, or in a directory of another user, the column does.
    """
    if row.stop_requested == reason:
        return Done.BEFORE
    conn.execute(update(job).where(job.c.id == row.id).values(stop_requested=reason))
    note(conn, row.id, State.RUNNING, actor=actor, why=f"asked to stop: {reason}")
    attempt = RunDir(db.settings.runs_dir / str(row.id)).attempt(row.attempt)
    with contextlib.suppress(OSError):
        if attempt.job_file.exists():
            attempt.request_abort(Abort(reason=reason))
    return Done.ASKED


def _instead_of_retry(row: Row[Any]) -> str:
    match State(row.state):
        case State.QUEUED:
            return "it waits for its turn already"
        case State.RUNNING:
            return f"put it back with: cockpit requeue {row.id}"
        case _:
            return f"run it again as a new job with: cockpit retry {row.id} --fresh"


def _replace_tags(conn: Connection, job_id: int, tags: list[str]) -> None:
    conn.execute(delete(job_tag).where(job_tag.c.job_id == job_id))
    if tags:
        conn.execute(insert(job_tag), [{"tag": tag, "job_id": job_id} for tag in tags])


def _replace_parents(conn: Connection, job_id: int, wanted: Edit) -> None:
    """Of the parents and of what their failure means, the one that is not given stays."""
    given, now = wanted.model_fields_set, dependencies.parents_of(conn, job_id)
    parents = wanted.after if "after" in given else [row.parent_id for row in now]
    policy = wanted.if_parent_fails
    if "if_parent_fails" not in given and now:
        policy = IfParentFails(now[0].if_failed)
    if "if_parent_fails" in given and not parents:
        problem = f"means nothing: job {job_id} runs after no other job"
        remedy = "say with `after` which jobs it runs after, or leave this out"
        raise ConfigError([ConfigProblem("if_parent_fails", policy.value, problem, remedy)])
    dependencies.refuse_cycle(conn, job_id, parents)
    dependencies.open_parents(conn, parents, policy)
    dependencies.follow(conn, job_id, parents, policy)
