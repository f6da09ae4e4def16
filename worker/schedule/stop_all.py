"""Stop all: one order that brings the lane to rest. Nothing is lost by it, and nothing hidden.

The queue is paused, so that nothing more is claimed; what runs is asked for a checkpoint and ends
as cancelled, to be tried again from there; autonomy is switched off, so that no tick and no cron
line starts anything. In this order: whatever fails, what came before it stands. Each step that
changed something leaves its own row in the audit.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from worker.db.connection import Database
from worker.queue import control, pausing
from worker.queue.lookup import running_ids
from worker.queue.refusals import WrongStateError
from worker.schedule import autonomy, policy

WHY = "stop all"


class Stopped(NamedTuple):
    """What the order changed."""

    paused: bool
    asked: list[int]
    """Running jobs that were asked to end at a checkpoint."""
    disarmed: bool


def stop_all(db: Database, *, actor: str, now: float) -> Stopped:
    """Pause, cancel what runs, disarm.

    Raises CrontabError when the crontab line stays.
    """
    paused = pausing.pause(db, actor=actor, why=WHY)
    asked = []
    for job_id in running_ids(db):
        # One that ended meanwhile has nothing left to stop.
        with contextlib.suppress(WrongStateError):
            if control.cancel(db, job_id, actor=actor) is control.Done.ASKED:
                asked.append(job_id)
    standing = policy.standing(db)
    armed = standing is not None and standing.armed
    if armed:
        autonomy.switch_off(db, actor=actor, now=now)
    return Stopped(paused, asked, armed)
