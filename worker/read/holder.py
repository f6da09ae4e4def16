"""The lane's holder as those see it who wait: what it runs, by whose order, and until when.

The one place that knows when the queue goes on, so that every page, the command line and the
preview name the same moment. Reads only.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, select

from worker.db.tables import job, lane
from worker.estimate.time_left import left_s
from worker.schedule.policy import Standing, withheld_in
from worker.settings import WorkerSettings


class Holder(NamedTuple):
    """A drain that has the lane and still shows signs of life."""

    job_id: int | None
    """What it runs; None while it is about to take a job."""
    scheduled: bool
    """It obeys the policy; else it is a person's order, which asks no window and no cap."""
    free_at: float | None
    """Unix seconds at which its engine expects to be done; now where it runs nothing."""


def holder_of(conn: Connection, settings: WorkerSettings, now: float) -> Holder | None:
    """Who has the lane of the settings; None when it is free, or its lease has run out."""
    row = conn.execute(select(lane).where(lane.c.name == settings.lane)).one_or_none()
    if row is None or row.holder is None or now - row.heartbeat_at > settings.lease_s:
        return None
    if row.job_id is None:
        return Holder(None, bool(row.scheduled), now)
    result = conn.execute(select(job.c.result).where(job.c.id == row.job_id)).scalar_one_or_none()
    left = None if result is None else left_s(result, now)
    free_at = None if left is None else now + max(0.0, left)
    return Holder(row.job_id, bool(row.scheduled), free_at)


def queue_goes_on(conn: Connection, found: Standing | None, holder: Holder) -> float | None:
    """When the next job may start behind the one on the lane; None where nobody knows.

    A person's drain takes it as soon as the lane is free; behind a scheduled one the policy is
    asked how it stands at that moment.
    """
    if holder.free_at is None or not holder.scheduled:
        return holder.free_at
    held = withheld_in(conn, found, holder.free_at)
    return holder.free_at if held is None else held.until
