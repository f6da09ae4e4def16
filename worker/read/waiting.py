"""Why a queued job does not run yet: a word for machines, a sentence for people, and until when.

The only place that decides which of several reasons is told: first what concerns the job alone,
then what concerns the whole queue. Reads nothing; the views hand it what they read.
"""

from __future__ import annotations

from typing import NamedTuple

from pydantic import BaseModel, ConfigDict
from sqlalchemy import RowMapping

from worker.amounts import exact
from worker.lane.accelerator import no_lane_words
from worker.lane.machine_lock import Keeper
from worker.queue.deferral import Deferral, Reason
from worker.queue.pausing import Pause


class Waiting(BaseModel):
    """What a queued job waits for."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    reason: Reason
    detail: str
    """A sentence with the way out, where there is one."""
    next_eligible_at: float | None
    """Unix seconds at which it may run, as far as that is known; None = nobody knows."""


class QueueStand(NamedTuple):
    """What holds for every queued job at one moment."""

    lane: str
    pause: Pause | None
    lane_held: bool
    """By a drain that still shows signs of life."""
    lane_job: int | None
    """The job that it runs."""
    goes_on_at: float | None
    """Unix seconds at which the next one may start behind it; None = nobody knows."""
    lane_exists: bool
    """Its accelerator is in this machine."""
    kept_by: Keeper | None
    """A drain of another data directory that has the accelerator."""
    withheld: Deferral | None
    """Why nothing starts jobs by itself now; None = the next tick does."""
    interval_min: float
    """Minutes between two ticks."""


def why_waiting(row: RowMapping, stand: QueueStand, now: float) -> Waiting:
    """`row`: the job's own columns."""
    until = row["next_eligible_at"]
    if row["defer_reason"] is not None and (until is None or until > now):
        detail = row["defer_detail"] or ""
        return Waiting(reason=Reason(row["defer_reason"]), detail=detail, next_eligible_at=until)
    return _queue_waits(stand, now)


def _queue_waits(stand: QueueStand, now: float) -> Waiting:
    found = _paused(stand) or _lane_waits(stand, now) or stand.withheld
    if found is None:
        detail = (
            f"the next tick starts it, at most {exact(stand.interval_min)} min from now; "
            "to start it now, run: cockpit drain"
        )
        found = Deferral(Reason.WAITING_FOR_TICK, detail, now)
    return Waiting(reason=found.reason, detail=found.detail, next_eligible_at=found.until)


def _paused(stand: QueueStand) -> Deferral | None:
    if stand.pause is None:
        return None
    why = f": {stand.pause.why}" if stand.pause.why else ""
    detail = f"{stand.pause.actor} paused the queue{why}; to go on, run: cockpit resume"
    return Deferral(Reason.PAUSED, detail)


def _lane_waits(stand: QueueStand, now: float) -> Deferral | None:
    if stand.lane_held and stand.lane_job is not None:
        detail = f'lane "{stand.lane}" runs job {stand.lane_job}; the queue goes on after it'
        return Deferral(Reason.LANE_BUSY, detail, stand.goes_on_at)
    if stand.lane_held:
        detail = f'a drain on lane "{stand.lane}" is about to take the next job'
        return Deferral(Reason.LANE_BUSY, detail, now)
    if stand.kept_by is not None:
        detail = f'lane "{stand.lane}" is held by {stand.kept_by}; the queue goes on after it'
        return Deferral(Reason.LANE_BUSY, detail)
    if not stand.lane_exists:
        return Deferral(Reason.NO_LANE, no_lane_words(stand.lane))
    return None
