"""What became of the `requant` that a run's config asks for: its job, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection, select

from worker.attempt.follow_up import NOT_MADE, follower_of
from worker.db.connection import Database
from worker.db.tables import job_event
from worker.queue.states import State
from worker.read.jobs import JobView


class FollowUpView(BaseModel):
    """In words, behind `requant:`."""

    model_config = ConfigDict(frozen=True)

    job_id: int | None
    """The job that was made."""
    words: str


def requant_of(
    conn: Connection,
    job_id: int,
    state: State,
    config: Mapping[str, Any],
    result: Mapping[str, Any],
) -> FollowUpView | None:
    """None for a run that asks for none."""
    if not config.get("requant"):
        return None
    if not state.final:
        return FollowUpView(job_id=None, words="comes after a gain on held-out rows")
    made = follower_of(conn, job_id)
    if made is not None:
        return FollowUpView(job_id=made, words=f"job {made}, after the gain")
    return FollowUpView(job_id=None, words=f"none: {_why_none(conn, job_id, state, result)}")


def requant_of_job(db: Database, job: JobView) -> FollowUpView | None:
    """The same for a job that was read already."""
    with db.read() as conn:
        return requant_of(conn, job.id, job.state, job.config, job.result)


def _why_none(conn: Connection, job_id: int, state: State, result: Mapping[str, Any]) -> str:
    if state is not State.SUCCEEDED:
        return f"the run is {state}"
    said = (
        select(job_event.c.why)
        .where(job_event.c.job_id == job_id, job_event.c.why.startswith(NOT_MADE))
        .order_by(job_event.c.id.desc())
        .limit(1)
    )
    refused = conn.execute(said).scalar_one_or_none()
    if refused is not None:
        return str(refused).removeprefix(NOT_MADE)
    return f"the verdict is {result.get('verdict') or 'not known'}, and it follows a gain alone"
