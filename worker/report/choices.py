"""Choices: what a person made of a night's proposals, kept in the lane's audit beside the snapshot.

An approval does exactly what the proposal shows: it queues its config under a key of its own
(pressed twice, it is one job), or sets its terms for the lane; what only hands can do it notes as
done. An edit does it in another form. The last word about a proposal counts, and all of them stay
in the audit. Knows no page.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy import select

from engine.contract.documents import number_of
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.problems import text_problems
from worker.amounts import exact
from worker.db import decisions
from worker.db.connection import Database
from worker.db.tables import lane_event
from worker.queue.refusals import QueueRefusedError
from worker.queue.submission import submission
from worker.queue.submit import submit
from worker.report.proposals import Proposal
from worker.report.standup import Report
from worker.schedule import autonomy, policy

APPROVED, EDITED, DROPPED = "proposal-approved", "proposal-edited", "proposal-dropped"
MAX_NOTE = 200


class NoProposalError(QueueRefusedError):
    """The night has no such proposal."""

    code = "no_proposal"


class NotArmedError(QueueRefusedError):
    """A cap is a term of an armed lane."""

    code = "not_armed"

    def __init__(self, lane: str) -> None:
        super().__init__(
            f"lane {lane} is not armed, so it has no cap to raise; arm it on the queue page, or "
            "with: cockpit autonomy on --cap-usd NUMBER"
        )


class Choice(BaseModel):
    """The last word about one proposal."""

    model_config = ConfigDict(frozen=True)

    what: str
    """One of APPROVED, EDITED, DROPPED."""
    at: float
    actor: str
    job_id: int | None
    """The job that came of it."""
    note: str | None = None
    """What was done in place of the proposal, where that is no job."""


class DecidedError(QueueRefusedError):
    """Something was done about a proposal, so that dropping it would hide that."""

    code = "decided"

    def __init__(self, report: Report, last: Choice) -> None:
        came = f"job {last.job_id} came of it" if last.job_id else "it is done"
        super().__init__(
            f"{last.actor} decided this proposal of {report.day} already, and {came}; "
            "reload the report, and cancel or change that instead"
        )


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
            what=row["what"],
            at=row["at"],
            actor=row["actor"],
            job_id=row["job_id"],
            note=_note(row["what"], row["numbers"]),
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


def approve(db: Database, report: Report, key: str, *, actor: str) -> int | None:
    """Do what a proposal shows. Returns the job that it queued, the same one when pressed again.

    Raises NoProposalError, NotArmedError, AlreadyTriedError, and ConfigError when its settings do
    not hold any more.
    """
    proposal = proposal_of(report, key)
    job_id = None
    if proposal.kind is not None:
        job_id = _queue(db, report, proposal, actor)
    elif proposal.changes:
        _set_terms(db, _still_larger(db, proposal), actor)
    _record(db, report, proposal, APPROVED, actor=actor, job_id=job_id)
    return job_id


def edited(db: Database, report: Report, key: str, job_id: int, *, actor: str) -> None:
    """Remember that a job was queued instead of the proposal as it stood."""
    _record(db, report, proposal_of(report, key), EDITED, actor=actor, job_id=job_id)


def edit(db: Database, report: Report, key: str, given: Mapping[str, str], *, actor: str) -> None:
    """Do something else instead: other values of the proposed terms, or what a `note` says.

    Raises NoProposalError, NotArmedError, ConfigError. A job is edited in its form (`edited`).
    """
    proposal = proposal_of(report, key)
    if unwritable := text_problems(dict(given)):
        raise ConfigError(unwritable)
    if proposal.changes and proposal.kind is None:
        terms = _checked_terms(proposal, given)
        _set_terms(db, terms, actor)
        instead: dict[str, Any] = {name: float(value) for name, value in terms.items()}
    else:
        instead = {"note": _checked_note(given.get("note", ""))}
    _write(db, report, proposal, EDITED, actor=actor, job_id=None, numbers=instead)


def drop(db: Database, report: Report, key: str, *, actor: str) -> None:
    """Remember that the proposal is not wanted.

    Raises NoProposalError, and DecidedError where something was done about it already.
    """
    proposal = proposal_of(report, key)
    last = choices_of(db, report).get(key)
    if last is not None and last.what != DROPPED:
        raise DecidedError(report, last)
    _record(db, report, proposal, DROPPED, actor=actor, job_id=None)


def _queue(db: Database, report: Report, proposal: Proposal, actor: str) -> int:
    wanted = submission(
        {
            "kind": proposal.kind,
            "config": proposal.config or {},
            "name": proposal.name,
            "clone_of": proposal.job_id,
        }
    )
    door = f"report:{report.lane}:{report.day}:{proposal.key}"
    return submit(db, wanted, actor=actor, key=door).job_id


def _still_larger(db: Database, proposal: Proposal) -> dict[str, Any]:
    """The proposed caps that are not met already: an approval raises, and never lowers."""
    standing = policy.standing(db)
    now = {} if standing is None else standing.model_dump()
    return {
        change.setting: change.after
        for change in proposal.changes
        if now.get(change.setting) is not None and now[change.setting] < change.after
    }


def _set_terms(db: Database, wanted: Mapping[str, Any], actor: str) -> None:
    """Change the armed lane's terms; what is not wanted stays as it is."""
    now = time.time()
    standing = policy.standing(db)
    if standing is None or not autonomy.status(db, now).armed:
        raise NotArmedError(db.settings.lane)
    if wanted:
        terms = {**standing.terms().model_dump(), **wanted}
        autonomy.switch_on(db, terms, actor=actor, now=now)


def _checked_terms(proposal: Proposal, given: Mapping[str, str]) -> dict[str, float | str]:
    """One value for each proposed term: a cap is not taken away by an empty field.

    What is no number stays text, and is refused as one.
    """
    terms = {change.setting: given.get(change.setting, "").strip() for change in proposal.changes}
    remedy = "give a number, or drop the proposal"
    empty = [ConfigProblem(name, None, "is empty", remedy) for name in terms if not terms[name]]
    if empty:
        raise ConfigError(empty)
    numbers = {name: number_of(text) for name, text in terms.items()}
    return {name: terms[name] if found is None else found for name, found in numbers.items()}


def _checked_note(text: str) -> str:
    note = text.strip()
    if not 0 < len(note) <= MAX_NOTE:
        problem = f"must have 1 to {MAX_NOTE} characters"
        raise ConfigError([ConfigProblem("note", None, problem, "say in a sentence what was done")])
    return note


def _note(what: str, numbers: Mapping[str, Any]) -> str | None:
    """What an edit says of itself: its words, or the terms that it set."""
    if what != EDITED:
        return None
    terms = [
        f"{name} {exact(value)}" for name, value in numbers.items() if isinstance(value, float)
    ]
    return numbers.get("note") or ", ".join(terms) or None


def _record(
    db: Database,
    report: Report,
    proposal: Proposal,
    what: str,
    *,
    actor: str,
    job_id: int | None,
) -> None:
    """The same word twice is one entry."""
    last = choices_of(db, report).get(proposal.key)
    if last is not None and (last.what, last.job_id) == (what, job_id):
        return
    changes = {change.setting: change.after for change in proposal.changes}
    numbers = {} if job_id is not None and what == EDITED else changes
    _write(db, report, proposal, what, actor=actor, job_id=job_id, numbers=numbers)


def _write(
    db: Database,
    report: Report,
    proposal: Proposal,
    what: str,
    *,
    actor: str,
    job_id: int | None,
    numbers: Mapping[str, Any],
) -> None:
    with db.write_tx() as conn:
        decisions.record(
            conn,
            report.lane,
            what,
            proposal.text,
            actor=actor,
            job_id=job_id,
            rule=proposal.key,
            numbers={"day": report.day.isoformat(), **numbers},
            at=time.time(),
        )
