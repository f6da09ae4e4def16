"""Why a queued job does not run yet: one word for machines, one sentence for people.

The only place that decides it. Reads nothing; the views hand it what they read.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from worker.lane.policy import armed
from worker.settings import WorkerSettings


class Reason(StrEnum):
    """Machine words."""

    LANE_BUSY = "LANE_BUSY"
    WAITING_FOR_TICK = "WAITING_FOR_TICK"
    NOT_ARMED = "NOT_ARMED"


class Waiting(BaseModel):
    """What a queued job waits for."""

    model_config = ConfigDict(frozen=True)

    reason: Reason
    detail: str
    """A sentence with the way out, where there is one."""


def why_waiting(settings: WorkerSettings, *, lane_held: bool, lane_job: int | None) -> Waiting:
    """`lane_held`: by a drain that still shows signs of life; `lane_job`: the job it runs."""
    if lane_job is not None and lane_held:
        return Waiting(
            reason=Reason.LANE_BUSY,
            detail=f'lane "{settings.lane}" runs job {lane_job}; the queue goes on after it',
        )
    if lane_held:
        return Waiting(
            reason=Reason.LANE_BUSY,
            detail=f'a drain on lane "{settings.lane}" is about to take the next job',
        )
    if armed(settings):
        return Waiting(
            reason=Reason.WAITING_FOR_TICK,
            detail=f"the next tick starts it, at most {settings.tick_minutes:g} min from now; "
            "to start it now, run: cockpit drain",
        )
    return Waiting(
        reason=Reason.NOT_ARMED, detail="nothing starts jobs by itself; run: cockpit drain"
    )
