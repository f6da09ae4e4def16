"""Deferrals: the one reason why a queued job must not be claimed yet, and until when.

A deferral is no state. The claim looks at the column alone, so a job that must wait costs those
behind it nothing. What holds for the whole queue (a pause, a busy lane) is no deferral: see
`worker.read.waiting`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import Connection, select, text, update

from worker.db.changes import announce, announce_moved
from worker.db.tables import DEFERRED, job
from worker.queue.states import State

WOKEN_AT_ONCE = 500
"""Jobs that one look frees at most: a look stays short however many are due."""


class Reason(StrEnum):
    """Why a queued job does not run, one word for machines."""

    NOT_BEFORE = "NOT_BEFORE"
    WAITING_FOR = "WAITING_FOR"
    DISK_FULL = "DISK_FULL"
    CANNOT_BEGIN = "CANNOT_BEGIN"
    SERVER_LOST = "SERVER_LOST"
    PAUSED = "PAUSED"
    LANE_BUSY = "LANE_BUSY"
    NO_LANE = "NO_LANE"
    WAITING_FOR_TICK = "WAITING_FOR_TICK"
    NOT_ARMED = "NOT_ARMED"
    OUTSIDE_WINDOW = "OUTSIDE_WINDOW"
    OVER_DAILY_CAP = "OVER_DAILY_CAP"
    OOM_ENVELOPE = "OOM_ENVELOPE"
    LANE_BIN_ABSENT = "LANE_BIN_ABSENT"
    RESIDENT_STUCK = "RESIDENT_STUCK"

    @property
    def meaning(self) -> str:
        """The word in a sentence."""
        return _MEANINGS[self]

    @property
    def of_one_job(self) -> bool:
        """Whether it holds for the job alone, whatever stands before it in the queue."""
        return self in _OF_ONE_JOB


_MEANINGS = {
    Reason.NOT_BEFORE: "its start time has not come",
    Reason.WAITING_FOR: "jobs that it runs after have not ended",
    Reason.DISK_FULL: "there was no room for its run directory",
    Reason.CANNOT_BEGIN: "something of its own kept it from beginning",
    Reason.SERVER_LOST: "the server that it samples from is gone",
    Reason.PAUSED: "somebody paused the queue",
    Reason.LANE_BUSY: "the lane runs another job",
    Reason.NO_LANE: "the lane's accelerator is not in this machine",
    Reason.WAITING_FOR_TICK: "the next tick starts it",
    Reason.NOT_ARMED: "nothing starts jobs by itself",
    Reason.OUTSIDE_WINDOW: "jobs run at other hours",
    Reason.OVER_DAILY_CAP: "today's money is spent, or this job would spend more",
    Reason.OOM_ENVELOPE: "it would not fit into memory",
    Reason.LANE_BIN_ABSENT: "the program that serves its model is not installed",
    Reason.RESIDENT_STUCK: "the resident model does not give its memory back",
}
_OF_ONE_JOB = frozenset(
    {
        Reason.NOT_BEFORE,
        Reason.WAITING_FOR,
        Reason.DISK_FULL,
        Reason.CANNOT_BEGIN,
        Reason.SERVER_LOST,
        Reason.OVER_DAILY_CAP,
        Reason.OOM_ENVELOPE,
        Reason.LANE_BIN_ABSENT,
    }
)


class Deferral(NamedTuple):
    """Why and until when."""

    reason: Reason
    detail: str
    until: float | None = None
    """Unix seconds; None = something else than time must happen."""

    def values(self) -> dict[str, Any]:
        """The job's columns."""
        return {
            "defer_reason": self.reason,
            "defer_detail": self.detail,
            "next_eligible_at": self.until,
        }


FREE: dict[str, Any] = {"defer_reason": None, "defer_detail": None, "next_eligible_at": None}
"""The job's columns when it may be claimed."""


def deferral_of(
    parents: Mapping[int, State], not_before: float | None, now: float
) -> Deferral | None:
    """What a job with these open parents, each with its state, and this start time waits for now.

    A parent that is over and still open is one whose success the job waits for: only a person's
    retry brings that.
    """
    if parents:
        numbers = sorted(parents)
        shown = ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
        several = "s" if len(numbers) > 1 else ""
        over = next((number for number in numbers if parents[number].final), None)
        retry = (
            f"; job {over} is {parents[over]}, try it again with: cockpit retry {over}"
            if over
            else ""
        )
        return Deferral(Reason.WAITING_FOR, f"runs after job{several} {shown}{retry}")
    if not_before is not None and not_before > now:
        return Deferral(Reason.NOT_BEFORE, "its start time has not come", not_before)
    return None


def columns_of(deferral: Deferral | None) -> dict[str, Any]:
    """The job's columns for either case."""
    return FREE if deferral is None else deferral.values()


def wake_due(conn: Connection, now: float) -> list[int]:
    """Free the jobs whose time has come, the longest due first. Returns their ids."""
    due = (
        select(job.c.id)
        .where(text(DEFERRED), job.c.next_eligible_at <= now)
        .order_by(job.c.next_eligible_at)
        .limit(WOKEN_AT_ONCE)
    )
    woken = list(
        conn.execute(
            update(job).where(job.c.id.in_(due.scalar_subquery())).values(FREE).returning(job.c.id)
        ).scalars()
    )
    for job_id in woken[:1]:
        announce_moved(conn, job_id)
    for job_id in woken[1:]:
        announce(conn, "job", job_id)
    return woken
