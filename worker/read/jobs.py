"""Jobs, sweeps and the queue as pages, REST and the command line show them. Writes nothing.

Keyset pages only; history is never counted or skipped over.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy import (
    BindParameter,
    Connection,
    Row,
    RowMapping,
    Select,
    bindparam,
    func,
    select,
    text,
)

from engine.contract.embedded import is_demo
from worker.db.connection import Database
from worker.db.tables import (
    CLAIMABLE,
    DEFERRED,
    attempt,
    dependency,
    job,
    job_event,
    job_tag,
    metric,
    state_count,
)
from worker.lane.accelerator import accelerator_is_here
from worker.lane.machine_lock import keeper_elsewhere
from worker.queue.dependencies import IfParentFails
from worker.queue.lookup import JobNotFoundError, jobs_of_sweep, sweep_row
from worker.queue.pausing import Pause, pause_of
from worker.queue.states import State
from worker.read.holder import holder_of, queue_goes_on
from worker.read.waiting import QueueStand, Waiting, why_waiting
from worker.schedule.policy import standing_in, withheld_in

MAX_PAGE = 500


class _View(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class JobView(_View):
    """One job. Times are Unix seconds in UTC."""

    id: int
    kind: str
    name: str
    state: State
    config: dict[str, Any]
    """Resolved: every default written out."""
    created_at: float
    created_by: str
    priority: int
    """Higher runs first."""
    not_before: float | None
    """Earliest start."""
    after: list[int]
    """Jobs that it runs after."""
    if_parent_fails: IfParentFails | None
    """What becomes of it when one of those ends without success; None when there is none."""
    tags: list[str]
    sweep_id: int | None
    sweep_point: dict[str, Any] | None
    """The values that the sweep gave to it, by dotted name."""
    clone_of: int | None
    """The job that it began from: run again as it was, or with changes."""
    stop_requested: str | None
    """What a person asked of the running attempt: cancel or requeue."""
    pruned_at: float | None
    """When its checkpoints, rollouts and metrics were thrown away."""
    note: str | None
    """What a person wrote about it."""
    archived_at: float | None
    """When it was put away; lists of runs leave it out."""
    deleted_at: float | None
    """When its files and numbers were thrown away."""
    started_at: float | None
    """First start of all attempts."""
    finished_at: float | None
    lane_s: float | None
    """Seconds for which its ended attempts held the lane; None before one ended."""
    heartbeat_at: float | None
    """The supervisor's last sign of life in the current or last attempt."""
    attempt: int
    """How often it was started; 0 = never."""
    lane: str | None
    """Where it runs now."""
    result: dict[str, Any]
    """The live result while it runs, then the final one."""
    cause: str | None
    """One word for machines when it did not succeed, e.g. CRASH."""
    error: str | None
    """One sentence for people."""
    waits_for: Waiting | None
    """Why a queued job does not run yet; None in any other state."""
    run_dir: Path

    @property
    def demo(self) -> bool:
        """Whether its model or its data are embedded ones."""
        return is_demo(self.config)


class AttemptView(_View):
    """One ended attempt."""

    n: int
    lane: str | None
    started_at: float
    ended_at: float
    seconds: float
    """Charged: what it held the lane for, up to its supervisor's last sign of life."""
    outcome: State
    cause: str | None


class SweepView(_View):
    """One config with lists, and how far its jobs are."""

    id: int
    kind: str
    name: str
    axes: dict[str, list[Any]]
    """Dotted name of a setting → its values."""
    created_at: float
    created_by: str
    job_ids: list[int]


class AuditView(_View):
    """One transition."""

    id: int
    at: float
    actor: str
    from_state: State | None
    to_state: State
    why: str


def get_job(db: Database, job_id: int) -> JobView:
    """Raises JobNotFoundError."""
    found = _job_views(db, (_ONE,), {"job_id": job_id})
    if not found:
        raise JobNotFoundError(job_id)
    return found[0]


def list_jobs(
    db: Database,
    *,
    before: int | None = None,
    limit: int = 50,
    state: State | None = None,
    tag: str | None = None,
    sweep_id: int | None = None,
) -> list[JobView]:
    """One page, newest first; the next page is the one `before` the last id of this one."""
    # Along the index of the tag where one is asked for: nothing is sorted.
    key = job.c.id if tag is None else job_tag.c.job_id
    statement = select(job).where(job.c.deleted_at.is_(None)).order_by(key.desc())
    statement = statement.limit(max(0, min(limit, MAX_PAGE)))
    if tag is not None:
        statement = statement.join(job_tag, key == job.c.id).where(job_tag.c.tag == tag)
    if before is not None:
        statement = statement.where(key < before)
    if state is not None:
        statement = statement.where(job.c.state == state)
    if sweep_id is not None:
        statement = statement.where(job.c.sweep_id == sweep_id, job.c.sweep_id.is_not(None))
    return _job_views(db, (statement,), {})


def next_jobs(db: Database, *, limit: int = 50) -> list[JobView]:
    """Queued jobs in the order in which a drain claims them.

    Behind those that may be claimed come the deferred ones: by their time, then those that wait
    for something else.
    """
    return _job_views(db, (_IN_TURN, *_PUT_OFF), {}, limit)


def in_turn(db: Database, *, limit: int = 50) -> list[JobView]:
    """Of them those that may be claimed, alone."""
    return _job_views(db, (_IN_TURN,), {}, limit)


def put_off(db: Database, *, limit: int = 50) -> list[JobView]:
    """The deferred jobs alone: by their time, then those that wait for something else."""
    return _job_views(db, _PUT_OFF, {}, limit)


def get_sweep(db: Database, sweep_id: int) -> SweepView:
    """Raises SweepNotFoundError."""
    with db.read() as conn:
        row = sweep_row(conn, sweep_id)
        job_ids = jobs_of_sweep(conn, sweep_id)
    return SweepView.model_validate(row._asdict() | {"job_ids": job_ids})


def attempts(db: Database, job_id: int) -> list[AttemptView]:
    """Every ended attempt of a job, oldest first. Raises JobNotFoundError."""
    get_job(db, job_id)
    statement = select(attempt).where(attempt.c.job_id == job_id).order_by(attempt.c.n)
    with db.read() as conn:
        return [AttemptView.model_validate(row) for row in conn.execute(statement).mappings()]


def paused(db: Database) -> Pause | None:
    """Who paused the queue, when and why; None while it is not paused."""
    with db.read() as conn:
        return pause_of(conn)


def running(db: Database) -> list[JobView]:
    """What runs now, oldest first."""
    return _job_views(db, (_RUNNING,), {}, MAX_PAGE)


def last_run(db: Database) -> JobView | None:
    """What runs now, else the job whose attempt began last; None before the first one."""
    found = running(db)
    if found:
        return found[0]
    newest = select(attempt.c.job_id).order_by(attempt.c.started_at.desc()).limit(1)
    with db.read() as conn:
        job_id = conn.execute(newest).scalar()
    return None if job_id is None else get_job(db, job_id)


def counts(db: Database) -> dict[State, int]:
    """Jobs in each state, from the kept counters."""
    with db.read() as conn:
        found = {row.state: row.n for row in conn.execute(_COUNTS)}
    return {state: found.get(state, 0) for state in State}


def audit(db: Database, job_id: int) -> list[AuditView]:
    """Every transition of a job, oldest first. Raises JobNotFoundError."""
    get_job(db, job_id)
    statement = select(job_event).where(job_event.c.job_id == job_id).order_by(job_event.c.id)
    with db.read() as conn:
        return [AuditView.model_validate(row) for row in conn.execute(statement).mappings()]


def metrics(
    db: Database, job_id: int, series: Sequence[str] | None = None
) -> dict[str, list[tuple[int, float]]]:
    """Measured values as {series: [(step, value), …]}, steps rising; all series by default.

    Raises JobNotFoundError. A series nobody wrote is absent.
    """
    get_job(db, job_id)
    statement = (
        select(metric.c.series, metric.c.step, metric.c.value)
        .where(metric.c.job_id == job_id)
        .order_by(metric.c.series, metric.c.step)
    )
    if series is not None:
        statement = statement.where(metric.c.series.in_(series))
    found: dict[str, list[tuple[int, float]]] = {}
    with db.read() as conn:
        for name, step, value in conn.execute(statement):
            found.setdefault(name, []).append((step, value))
    return found


# Built once: to put a statement together costs more than to run it.
_MOST: BindParameter[Any] = bindparam("most")
_ONE = select(job).where(job.c.id == bindparam("job_id"))
_RUNNING = select(job).where(job.c.state == State.RUNNING).order_by(job.c.id).limit(_MOST)
_IN_TURN = (
    select(job)
    .where(text(CLAIMABLE))
    .order_by(job.c.priority.desc(), job.c.rank, job.c.id)
    .limit(_MOST)
)
_PUT_OFF = tuple(
    select(job).where(text(DEFERRED), timed).order_by(order).limit(_MOST)
    for timed, order in (
        (job.c.next_eligible_at.is_not(None), job.c.next_eligible_at),
        (job.c.next_eligible_at.is_(None), job.c.id),
    )
)
_IDS: BindParameter[Any] = bindparam("ids", expanding=True)
_TAGS = (
    select(job_tag.c.job_id, job_tag.c.tag)
    .where(job_tag.c.job_id.in_(_IDS))
    .order_by(job_tag.c.job_id, job_tag.c.tag)
)
_PARENTS = (
    select(dependency.c.job_id, dependency.c.parent_id, dependency.c.if_failed)
    .where(dependency.c.job_id.in_(_IDS))
    .order_by(dependency.c.job_id, dependency.c.parent_id)
)
_HELD = (
    select(attempt.c.job_id, func.sum(attempt.c.seconds).label("seconds"))
    .where(attempt.c.job_id.in_(_IDS))
    .group_by(attempt.c.job_id)
)
_COUNTS = select(state_count)


def _job_views(
    db: Database,
    statements: Sequence[Select[Any]],
    values: Mapping[str, Any],
    limit: int | None = None,
) -> list[JobView]:
    """The jobs, and what they wait for, as it is at one moment; one statement behind the other."""
    now = time.time()
    with db.read() as conn:
        rows: list[RowMapping] = []
        for statement in statements:
            if limit is None or len(rows) < limit:
                left = {} if limit is None else {"most": limit - len(rows)}
                rows += conn.execute(statement, {**values, **left}).mappings().all()
        ids = [row["id"] for row in rows]
        tags = tags_of(conn, ids)
        held = held_by(conn, [row["id"] for row in rows if row["attempt"]])
        parents = _grouped(conn, _PARENTS, ids)
        stand = _stand(db, conn, now) if any(row["state"] == State.QUEUED for row in rows) else None
    runs = db.settings.runs_dir
    return [
        JobView.model_validate(
            {
                **row,
                "config": _mapping(row["config"]),
                "result": _mapping(row["result"]),
                "after": [one.parent_id for one in parents.get(row["id"], ())],
                "if_parent_fails": next(
                    (one.if_failed for one in parents.get(row["id"], ())), None
                ),
                "tags": list(tags.get(row["id"], ())),
                "lane_s": held.get(row["id"]),
                "run_dir": runs / str(row["id"]),
                "waits_for": why_waiting(row, stand, now)
                if stand and row["state"] == State.QUEUED
                else None,
            }
        )
        for row in rows
    ]


def _mapping(value: Any) -> Mapping[str, Any]:
    """Of a damaged row nothing is known; the other rows of the page are."""
    return value if isinstance(value, dict) else {}


def tags_of(conn: Connection, ids: Sequence[int]) -> Mapping[int, tuple[str, ...]]:
    """The tags of each of these jobs that has one, in order."""
    found = _grouped(conn, _TAGS, ids)
    return {job_id: tuple(row.tag for row in rows) for job_id, rows in found.items()}


def held_by(conn: Connection, ids: Sequence[int]) -> Mapping[int, float]:
    """For how many seconds each of these jobs held the lane in its ended attempts, if it did."""
    if not ids:
        return {}
    return {row.job_id: float(row.seconds) for row in conn.execute(_HELD, {"ids": ids})}


def _grouped(
    conn: Connection, statement: Select[Any], ids: Sequence[int]
) -> dict[int, list[Row[Any]]]:
    """The rows of each owner, in order; none for who has none."""
    found: dict[int, list[Row[Any]]] = {}
    if ids:
        for row in conn.execute(statement, {"ids": ids}):
            found.setdefault(row[0], []).append(row)
    return found


def _stand(db: Database, conn: Connection, now: float) -> QueueStand:
    """What holds for every queued job now."""
    holder = holder_of(conn, db.settings, now)
    name, policy = db.settings.lane, standing_in(conn, db.settings.lane)
    return QueueStand(
        lane=name,
        pause=pause_of(conn),
        lane_held=holder is not None,
        lane_job=holder.job_id if holder else None,
        goes_on_at=queue_goes_on(conn, policy, holder) if holder else None,
        lane_exists=accelerator_is_here(name),
        kept_by=None if holder else keeper_elsewhere(db.settings),
        withheld=withheld_in(conn, policy, now),
        interval_min=policy.interval_min if policy else 0,
    )
