"""Attempts without progress: a job that comes back again and again and never gets to a checkpoint.

Budget, window, memory, silence, a full disk or a lost server end an attempt, and the next one
begins where this one began: two in a row that made no new checkpoint would be two thousand. Such a
job fails as NO_PROGRESS, with what it would take, and the jobs behind it get their turn. What a
person stopped, what died with its supervisor, and what found no server to begin with (which has a
limit of its own) counts for nothing. Writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, select

from engine.contract.ends import SERVER_LOST
from engine.contract.events import Event, usable
from engine.contract.known import real, setting_of, whole
from engine.contract.registry import kinds
from engine.contract.run_dir import RunDir, complete_checkpoints
from worker.amounts import dollars, exact
from worker.attempt.settlement import DISK_FULL, MEMORY, SILENT, Verdict
from worker.clock.window import Window, local_day, zone_named
from worker.db.connection import Database
from worker.db.tables import attempt, job, policy
from worker.estimate.history import FRUITLESS
from worker.queue.states import State

NO_PROGRESS = FRUITLESS

_COUNTED = frozenset({"BUDGET", "WINDOW", SILENT, MEMORY, DISK_FULL, SERVER_LOST})
"""What ends an attempt that shall go on by itself."""
_LOOKED_AT = 20
"""Earlier attempts among which the one before is looked for."""
_REMEDIES: Mapping[str, str] = {
    SILENT: "see at the end of engine.log where it hangs",
    MEMORY: "make it smaller (micro_batch, rollout_batch)",
    DISK_FULL: "make room for a checkpoint",
    SERVER_LOST: "see in serving.log, or where the server runs, why it ends",
}


def judged(db: Database, job_id: int, number: int, verdict: Verdict) -> Verdict:
    """The verdict on attempt `number`, or NO_PROGRESS in its place."""
    if verdict.to is not State.QUEUED or verdict.interrupted not in _COUNTED:
        return verdict
    run = RunDir(db.settings.runs_dir / str(job_id))
    if verdict.interrupted == SERVER_LOST and not _was_served(run, number):
        return verdict
    with db.read() as conn:
        before = _before(conn, run, job_id, number)
        if before is None or _progressed(run, since=before.n):
            return verdict
        row = conn.execute(select(job).where(job.c.id == job_id)).one()
        allowed = list(_allowed(conn, db))
    lasted = time.monotonic() - (row.started_beat or 0.0)
    ends = (
        f"attempt {before.n} after {_span(before.seconds)} ({before.cause}), "
        f"attempt {number} after {_span(lasted)} ({verdict.interrupted})"
    )
    error = "; ".join(
        [
            f"two attempts in a row ended without a new checkpoint: {ends}",
            _needed(run, row, number, max(before.seconds, lasted)),
            *allowed,
            _remedy(row.kind, [before.cause, verdict.interrupted], allowed),
        ]
    )
    return replace(
        verdict,
        to=State.FAILED,
        why=f"{verdict.why.split(', to resume')[0]}, again without a new checkpoint",
        cause=NO_PROGRESS,
        error=f"{error}, then: cockpit retry {job_id}",
        later=False,
        deferral=None,
    )


def _before(
    conn: Connection, run: RunDir, job_id: int, number: int
) -> Row[*tuple[Any, ...]] | None:
    """The attempt before that was ended likewise; none behind an end of the job."""
    earlier = (
        select(attempt.c.n, attempt.c.outcome, attempt.c.cause, attempt.c.seconds)
        .where(attempt.c.job_id == job_id, attempt.c.n < number)
        .order_by(attempt.c.n.desc())
        .limit(_LOOKED_AT)
    )
    for row in conn.execute(earlier):
        if row.outcome != State.QUEUED:
            return None
        if row.cause in _COUNTED and (row.cause != SERVER_LOST or _was_served(run, row.n)):
            return row
    return None


def _was_served(run: RunDir, number: int) -> bool:
    """Whether an attempt got beyond bringing its server up."""
    phases = (event.get("phase") for event in _events(run, number))
    return any(phase not in {None, "lane-bringup"} for phase in phases)


def _progressed(run: RunDir, *, since: int) -> bool:
    """Whether there is a checkpoint that was not there when attempt `since` began.

    An attempt that never began to train says nothing of where it began: the next one that did does.
    """
    try:
        newest = max((step for step, _ in complete_checkpoints(run)), default=0)
        began = next(
            (e for e in usable(run.events) if e["type"] == "started" and e["attempt"] >= since),
            None,
        )
    except OSError:
        return True  # unknown: no reason to give a job up
    return began is not None and newest > (began.get("resumed_from") or 0)


class _Pace(NamedTuple):
    """Of one attempt, in seconds."""

    setup_s: float
    step_s: float


def _needed(run: RunDir, row: Row[Any], number: int, longest_s: float) -> str:
    """How long the first new checkpoint takes, as far as it is known."""
    kind = kinds().get(row.kind)
    setting = None if kind is None else kind.saves
    every = None if setting is None else whole(setting_of(row.config, setting))
    pace = _pace(_events(run, number))
    if setting is None or every is None or pace is None:
        return f"the first one takes more than {_span(longest_s)} in one go"
    takes = max(longest_s, pace.setup_s + pace.step_s * every)
    return (
        f"the first one takes about {_span(takes)} in one go ({setting} is {every}, "
        f"a step takes {_span(pace.step_s)})"
    )


def _events(run: RunDir, number: int) -> Sequence[Event]:
    try:
        return [event for event in usable(run.events) if event["attempt"] == number]
    except OSError:
        return []


def _pace(events: Sequence[Event]) -> _Pace | None:
    """By the clock of the events; None before two steps were seen."""
    seen: dict[int, float] = {}
    for event in events:
        step, at = whole(event.get("step")), real(event.get("t"))
        if step is not None and at is not None and event["type"] == "metric":
            seen.setdefault(step, at)
    began = real(events[0].get("t")) if events else None
    if began is None or len(seen) < 2:
        return None
    first, last = min(seen), max(seen)
    step_s = (seen[last] - seen[first]) / (last - first)
    return _Pace(max(0.0, seen[first] - began), step_s) if step_s > 0 else None


def _allowed(conn: Connection, db: Database) -> Iterator[str]:
    """What the lane's policy gives an attempt at most."""
    terms = conn.execute(select(policy).where(policy.c.lane == db.settings.lane)).one_or_none()
    if terms is None or not terms.armed:
        return
    price = db.settings.price_usd_h
    if terms.cap_usd is not None and price > 0:
        allows = _span(terms.cap_usd / price * 3600)
        yield f"a day's {dollars(terms.cap_usd)} at {dollars(price)} an hour allow {allows}"
    if terms.cap_gpu_hours is not None:
        yield f"a day's cap allows {exact(terms.cap_gpu_hours)} lane hours"
    if terms.window is not None:
        zone = zone_named(terms.zone)
        hours = Window.parse(terms.window)
        span = hours.span_of(local_day(time.time(), zone), zone)
        if span is not None:
            yield f"the window {terms.window} allows {_span(span.closes - span.opens)}"


def _remedy(kind: str, causes: Sequence[str | None], allowed: Sequence[str]) -> str:
    found = [text for cause, text in _REMEDIES.items() if cause in causes]
    if set(causes) & {"BUDGET", "WINDOW"}:
        known = kinds().get(kind)
        saves = f"lower {known.saves}" if known is not None and known.saves else "make it smaller"
        more = ", give it more with: cockpit autonomy on" if allowed else ""
        found.append(f"{saves}{more}, or run it by hand with: cockpit drain")
    return "; ".join(found)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
