"""The queue's two ends: enqueue puts a validated job in, claim takes the next one out.

Next is the highest priority, inside it the smallest rank: first in, first out, until somebody
moves a job. Knows no process and no lane but the fence that it is handed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    exists,
    func,
    insert,
    not_,
    null,
    select,
    text,
)
from sqlalchemy.sql.dml import ReturningUpdate

from engine.contract.errors import ConfigError
from engine.contract.registry import get_kind, validate
from worker.clock.moments import start_time
from worker.db.connection import Database
from worker.db.tables import CLAIMABLE, DEFERRED, job, job_tag, queue_pause
from worker.db.zone import lane_zone
from worker.queue import dependencies, keys, looking, watches
from worker.queue.deferral import columns_of, deferral_of
from worker.queue.keys import Owner
from worker.queue.places import in_place
from worker.queue.refusals import AlreadyQueuedError, AlreadyTriedError
from worker.queue.states import State, apply, moving, record_created
from worker.queue.submission import Submission, checked_key, submission
from worker.queue.tried import Fingerprint, fingerprint, same_before


class Claim(NamedTuple):
    """The right to run one attempt of one job."""

    job_id: int
    kind: str
    config: dict[str, Any]
    attempt: int
    fence: int


class Submitted(NamedTuple):
    """The answer to a request."""

    job_id: int
    repeated: bool
    """The key was known: the job is the one that the first request made."""


class Terms(NamedTuple):
    """What a new job has to wait for."""

    not_before: float | None
    parents: Mapping[int, State]
    """Those of the jobs it runs after that are not over as it wishes, each with its state."""


class Candidate(NamedTuple):
    """A validated job that is not in the table yet."""

    kind: str
    name: str
    config: dict[str, Any]
    """With every default written out."""
    same: Fingerprint
    evaluate: Mapping[str, Any] | None = None
    """What its checkpoints are scored on as they appear."""
    sweep_id: int | None = None
    sweep_point: Mapping[str, Any] | None = None


def enqueue(
    db: Database,
    kind: str,
    raw: Mapping[str, Any],
    *,
    actor: str,
    name: str | None = None,
    key: str | None = None,
    **placement: Any,
) -> int:
    """`submit` for callers that have a kind and a config: `enqueue(db, "rl_run", {…}, priority=5)`.

    Returns the job's id.
    """
    wanted = submission({"kind": kind, "config": dict(raw), "name": name, **placement})
    return submit(db, wanted, actor=actor, key=key).job_id


def submit(db: Database, wanted: Submission, *, actor: str, key: str | None = None) -> Submitted:
    """Validate a config and put a job into the queue.

    `actor` says who asked and through which door: `cli:ada`. Raises ConfigError with every problem
    found, AlreadyTriedError, ParentFailedError, KeyReusedError; nothing is written then.
    """
    wanted = in_place(wanted, db.settings.runs_dir)
    if (before := _answered(db, wanted, key)) is not None:
        return before
    found = candidate(wanted.kind, wanted.config, wanted.name)
    not_before = start_time(wanted.not_before, time.time(), partial(lane_zone, db))

    with db.write_tx() as conn:
        if key is not None and (repeated := _answer_of(conn, wanted, key)) is not None:
            return repeated
        terms = terms_of(conn, wanted, not_before)
        if not wanted.force:
            refuse_tried(conn, found.same)
        job_id = insert_job(conn, found, wanted, terms, actor=actor, why="enqueued")
        if key is not None:
            keys.remember(conn, key, wanted.body_hash(), Owner(job_id, None))
        return Submitted(job_id, repeated=False)


def _answered(db: Database, wanted: Submission, key: str | None) -> Submitted | None:
    """A repeated request is answered before it is judged: its files may be gone by now."""
    if checked_key(key) is None:
        return None
    with db.read() as conn:
        return _answer_of(conn, wanted, str(key))


def _answer_of(conn: Connection, wanted: Submission, key: str) -> Submitted | None:
    owner = keys.owner_of(conn, key, wanted.body_hash())
    return Submitted(owner.job_id, repeated=True) if owner and owner.job_id else None


def candidate(kind: str, raw: Mapping[str, Any], name: str | None) -> Candidate:
    """Raises ConfigError with every problem found, those of a look among them."""
    config = validate(kind, raw)
    if found := looking.look(get_kind(kind), config).problems:
        raise ConfigError(found)
    plain = config.model_dump(mode="json")
    same = fingerprint(get_kind(kind), config, plain)
    evaluate = get_kind(kind).evaluate
    asked = None if evaluate is None else evaluate(config)
    told = None if asked is None else asked.model_dump(mode="json")
    return Candidate(kind, name or kind, plain, same, told)


def refuse_tried(conn: Connection, same: Fingerprint, point: str = "") -> None:
    """Raises AlreadyTriedError when the same job has a finished result, AlreadyQueuedError when it
    waits or runs.
    """
    found = same_before(conn, same)
    if found is None:
        return
    if State(found.state).final:
        raise AlreadyTriedError(found.job_id, found.verdict, point)
    raise AlreadyQueuedError(found.job_id, found.state, point)


def terms_of(conn: Connection, wanted: Submission, not_before: float | None) -> Terms:
    """Raises ConfigError for jobs named in it that do not exist, ParentFailedError."""
    dependencies.require_original(conn, wanted.clone_of)
    return Terms(not_before, dependencies.open_parents(conn, wanted.after, wanted.if_parent_fails))


def insert_job(
    conn: Connection,
    found: Candidate,
    wanted: Submission,
    terms: Terms,
    *,
    actor: str,
    why: str,
) -> int:
    """One queued job with its place in the queue, its tags and its parents. Returns its id."""
    now = time.time()
    row = {
        "kind": found.kind,
        "name": found.name,
        "state": State.QUEUED.value,
        "config": found.config,
        "created_at": now,
        "created_by": actor,
        "clone_of": wanted.clone_of,
        "sweep_id": found.sweep_id,
        "sweep_point": found.sweep_point,
        "config_hash": found.same.config,
        "data_hash": found.same.data,
        "group_hash": found.same.group,
        "priority": wanted.priority,
        "not_before": terms.not_before,
        **columns_of(deferral_of(terms.parents, terms.not_before, now)),
    }
    made = conn.execute(_INSERT, row | _NOTHING_YET).inserted_primary_key
    assert made is not None, "a row has a key"
    job_id = int(made[0])
    if wanted.tags:
        conn.execute(insert(job_tag), [{"tag": tag, "job_id": job_id} for tag in wanted.tags])
    if wanted.after:
        dependencies.follow(conn, job_id, wanted.after, wanted.if_parent_fails)
    if found.evaluate is not None:
        watches.add(conn, job_id, found.evaluate, actor=actor)
    record_created(conn, job_id, actor=actor, why=why)
    return job_id


class Ready(NamedTuple):
    """What a look at the queue found."""

    claimable: bool
    due: bool
    """A deferral has ended: `wake_due` frees the job."""
    paused: bool


def look(db: Database, *, skip: Sequence[int] = (), now: float | None = None) -> Ready:
    """A cheap look before a claim: a queue with nothing to do costs no write."""
    known = _but(skip) | {"now": _moment(now)}
    with db.read() as conn:
        row = conn.execute(_LOOK_BUT if skip else _LOOK, known).one()
    return Ready(bool(row.claimable), bool(row.due), bool(row.paused))


def claim(
    conn: Connection,
    *,
    lane: str,
    fence: int,
    actor: str,
    skip: Sequence[int] = (),
    only: int | None = None,
    now: float | None = None,
) -> Claim | None:
    """Take the next queued job for `lane` under a fence of its own, or None.

    One conditional UPDATE that changes exactly one row: of two claims, one gets the job; of a
    paused queue none does. Jobs in `skip` are left for another drain; `only` takes the one that
    was admitted, or none.
    """
    statement, chosen = _CLAIM_BUT if skip else _CLAIM, _but(skip)
    if only is not None:
        statement, chosen = _CLAIM_ONLY, {"only": only}
    mine = {"the_fence": fence, "the_lane": lane, "now": _moment(now), "now_beat": time.monotonic()}
    row = apply(
        conn,
        statement,
        State.QUEUED,
        State.RUNNING,
        mine | chosen,
        actor=actor,
        why=f"claimed for lane {lane} under fence {fence}",
    )
    return None if row is None else Claim(row.id, row.kind, row.config, row.attempt, fence)


def _but(skip: Sequence[int]) -> dict[str, Any]:
    return {"skip": list(skip)} if skip else {}


def _moment(now: float | None) -> float:
    return time.time() if now is None else now


# --- the statements of the hot path, built once ---

_queued = job.alias("queued")
_everyone = job.alias("everyone")
_NEXT = (
    select(_queued.c.id)
    .where(text(CLAIMABLE))
    .order_by(_queued.c.priority.desc(), _queued.c.rank, _queued.c.id)
    .limit(1)
)
"""The job that a claim takes, by the partial index in its order."""
_NEXT_BUT = _NEXT.where(_queued.c.id.not_in(bindparam("skip", expanding=True)))
_PAUSED = exists(select(queue_pause.c.id))


def _look(following: Select[tuple[int]]) -> Select[bool, bool, bool]:
    due = exists().where(text(DEFERRED), job.c.next_eligible_at <= bindparam("now"))
    return select(following.exists().label("claimable"), due.label("due"), _PAUSED.label("paused"))


def _claim(chosen: ColumnElement[bool]) -> ReturningUpdate[Any]:
    return moving(
        State.QUEUED,
        chosen,
        not_(_PAUSED),
        values={
            "attempt": job.c.attempt + 1,
            "fence": bindparam("the_fence"),
            "lane": bindparam("the_lane"),
            "started_at": func.coalesce(job.c.started_at, bindparam("now")),
            "attempt_started_at": bindparam("now"),
            "started_beat": bindparam("now_beat"),
            "heartbeat_at": bindparam("now"),
            "beat": bindparam("now_beat"),
            "stop_requested": null(),
            "cause": null(),
            "error": null(),
        },
        returning=(job.c.id, job.c.kind, job.c.config, job.c.attempt),
    )


_LOOK, _LOOK_BUT = _look(_NEXT), _look(_NEXT_BUT)
_CLAIM = _claim(job.c.id == _NEXT.scalar_subquery())
_CLAIM_BUT = _claim(job.c.id == _NEXT_BUT.scalar_subquery())
_CLAIM_ONLY = _claim(and_(job.c.id == bindparam("only"), text(CLAIMABLE)))

# Behind every job there is: the id that it will get, or one that a failed insert wasted.
_NEXT_RANK = select(func.coalesce(func.max(_everyone.c.id), 0) + 1).scalar_subquery()
_INSERT = insert(job).values(rank=_NEXT_RANK)
_NOTHING_YET: dict[str, Any] = {
    "result": {},
    "followers": 0,
    "attempt": 0,
    "fence": 0,
    "rescues": 0,
    "oom_deferred": 0,
    "ingested_seq": 0,
    "ingested_offset": 0,
}
