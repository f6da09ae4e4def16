"""Choices: what a person made of a night's proposals, kept in the lane's audit beside the snapshot.

An approval queues exactly the config that the proposal shows, under a key of its own: pressed
twice, it is one job. The last word about a proposal counts, and all of them stay in the audit.
Knows no page.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy import select

from worker.database import Database
from worker.jobs import queue
from worker.jobs.refusals import QueueRefusedError
from worker.jobs.submission import submission
from worker.lane import decisions
from worker.lane.tables import lane_event
from worker.report.proposals import Proposal
from worker.report.standup import Report

APPROVED, EDITED, DROPPED = "proposal-approved", "proposal-edited", "proposal-dropped"


class NoProposalError(QueueRefusedError):
    """The night has no such proposal, or it is one that queues nothing."""

    code = "no_proposal"


class Choice(BaseModel):
    """The last word about one proposal."""

    model_config = ConfigDict(frozen=True)

    what: str
    """One of APPROVED, EDITED, DROPPED."""
    at: float
    actor: str
    job_id: int | None
    """The job that came of it."""


def choices_of(db: Database, report: Report) -> dict[str, Choice]:
    """What was decided about each proposal of a night, by its key."""
    statement = (
        select(lane_event)
        .where(
            lane_event.c.lane == report.lane,
            lane_event.c.at >= report.begin,
            lane_event.c.what.in_((APPROVED, EDITED, DROPPED)),
        )
        .order_by(lane_event.c.at, lane_event.c.id)
    )
    with db.read() as conn:
        rows = conn.execute(statement).mappings().all()
    return {
        row["rule"]: Choice(
            what=row["what"], at=row["at"], actor=row["actor"], job_id=row["job_id"]
        )
        for row in rows
        if row["numbers"].get("day") == report.day.isoformat()
    }


def proposal_of(report: Report, key: str) -> Proposal:
    """Raises NoProposalError."""
    for proposal in report.proposals:
        if proposal.key == key:
            return proposal
    raise NoProposalError(f"the report of {report.day} has no proposal {key[:60]!r}; reload it")


def approve(db: Database, report: Report, key: str, *, actor: str) -> int:
    """Queue the job that a proposal shows; the same job when that was done before.

    Raises NoProposalError, ConfigError when its settings do not hold any more, AlreadyTriedError.
    """
    proposal = proposal_of(report, key)
    if proposal.kind is None:
        raise NoProposalError(f"the proposal {key} queues nothing; do what it says, or drop it")
    wanted = submission(
        {"kind": proposal.kind, "config": proposal.config or {}, "name": proposal.name}
    )
    door = f"report:{report.lane}:{report.day}:{key}"
    done = queue.submit(db, wanted, actor=actor, key=door)
    _record(db, report, proposal, APPROVED, actor=actor, job_id=done.job_id)
    return done.job_id


def edited(db: Database, report: Report, key: str, job_id: int, *, actor: str) -> None:
    """Remember that a job was queued instead of the proposal as it stood."""
    _record(db, report, proposal_of(report, key), EDITED, actor=actor, job_id=job_id)


def drop(db: Database, report: Report, key: str, *, actor: str) -> None:
    """Remember that the proposal is not wanted. Raises NoProposalError."""
    _record(db, report, proposal_of(report, key), DROPPED, actor=actor, job_id=None)


def _record(
    db: Database,
    report: Report,
    proposal: Proposal,
    what: str,
    *,
    actor: str,
    job_id: int | None,
) -> None:
    last = choices_of(db, report).get(proposal.key)
    if last is not None and (last.what, last.job_id) == (what, job_id):
        return
    numbers: Mapping[str, Any] = {
        "day": report.day.isoformat(),
        **{f"{change.setting}": change.after for change in proposal.changes},
    }
    with db.write_tx() as conn:
        decisions.record(
            conn,
            report.lane,
            what,
            proposal.text,
            actor=actor,
            job_id=job_id,
            rule=proposal.key,
            numbers=numbers,
            at=time.time(),
        )
