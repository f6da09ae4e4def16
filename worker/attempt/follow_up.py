"""Follow-ups: the job that comes after another one's success, where its kind says so by its result.

Made in the transaction that settles that success, under a key of its own: once, whatever dies when.
What keeps it from being made is said in the audit, and keeps nothing else from going on.
"""

from __future__ import annotations

from typing import NamedTuple

from pydantic import ValidationError
from sqlalchemy import Connection, select

from engine.contract.errors import NightlaneError
from engine.contract.kind import FollowUp
from engine.contract.registry import get_kind
from worker.db.connection import Database
from worker.db.tables import idempotency, job
from worker.queue import keys
from worker.queue.keys import Owner
from worker.queue.states import State, note
from worker.queue.submission import MAX_NAME, Submission, submission
from worker.queue.submit import Candidate, Terms, candidate, insert_job

NOT_MADE = "no job follows it: "
"""How the audit begins where one was due and could not be made."""


class Prepared(NamedTuple):
    """A follow-up, validated before the transaction that makes it."""

    wanted: Submission
    found: Candidate
    why: str


def prepared(db: Database, job_id: int) -> Prepared | str | None:
    """What is to follow a job with its result as it stands now; why it cannot, in words; None
    where nothing is to follow.
    """
    with db.read() as conn:
        row = conn.execute(select(job).where(job.c.id == job_id)).one()
    try:
        kind = get_kind(row.kind)
        config = kind.config.model_validate(row.config)
        due = kind.follows(config, row.result, db.settings.runs_dir / str(job_id))
        return None if due is None else _validated(due, job_id, row.name, row.priority)
    except (NightlaneError, ValidationError, OSError) as error:
        return str(error)[:500]


def _validated(due: FollowUp, job_id: int, name: str, priority: int) -> Prepared:
    wanted = submission(
        {
            "kind": due.kind,
            "config": dict(due.config),
            "name": f"{due.kind} of {name}"[:MAX_NAME].strip(),
            "priority": priority,
            "after": [job_id],
        }
    )
    return Prepared(wanted, candidate(wanted.kind, wanted.config, wanted.name), due.why)


def make(conn: Connection, job_id: int, due: Prepared | str, *, actor: str) -> None:
    """To be called where the success of the job is written."""
    if isinstance(due, str):
        note(conn, job_id, State.SUCCEEDED, actor=actor, why=f"{NOT_MADE}{due}")
        return
    why = f"follows job {job_id}: {due.why}"
    made = insert_job(conn, due.found, due.wanted, Terms(None, {}), actor=actor, why=why)
    keys.remember(conn, _key(job_id), due.wanted.body_hash(), Owner(made, None))
    note(conn, job_id, State.SUCCEEDED, actor=actor, why=f"job {made} follows it: {due.why}")


def follower_of(conn: Connection, job_id: int) -> int | None:
    """The job that was made behind another one's success."""
    found = select(idempotency.c.job_id).where(idempotency.c.key == _key(job_id))
    return conn.execute(found).scalar_one_or_none()


def _key(job_id: int) -> str:
    return f"follow-up of job {job_id}"
