"""Orphans: jobs whose drain is provably dead, settled at once by whoever acts on one of them.

A drain rescues them anyway when it begins; where nothing waits nobody starts one, and a job would
say running for ever. A holder that lives, however silent, is left to the next drain, which knows
how to end it. Knows no door.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from worker.attempt.rescue import rescue
from worker.attempt.runner.base import Runner
from worker.attempt.runner.local import LocalRunner
from worker.attempt.writing import Settled
from worker.db.connection import Database
from worker.db.tables import job, lane
from worker.lane.lease import LaneHeldError, hold_lane
from worker.lane.process_id import ProcessIdentity
from worker.queue.states import State


def settle_orphans(db: Database, runner: Runner | None = None) -> list[Settled]:
    """Settle what dead drains of any lane have left, as its files tell; mostly queued, to resume.

    One read where there is none. Raises StillAliveError when an engine cannot be ended.
    """
    settled: list[Settled] = []
    for name in orphaned_lanes(db):
        settings = db.settings.model_copy(update={"lane": name})
        used = runner or LocalRunner(settings)
        try:
            with hold_lane(db, settings, end=used.kill) as lease:
                settled += rescue(lease, used)
        except LaneHeldError:
            continue  # a drain was faster, or another data directory has the accelerator
    return settled


def orphaned_lanes(db: Database) -> Sequence[str]:
    """Lanes on which jobs run though nobody living holds them."""
    running = (
        select(job.c.lane, lane.c.holder)
        .join(lane, lane.c.name == job.c.lane, isouter=True)
        .where(job.c.state == State.RUNNING)
        .distinct()
    )
    with db.read() as conn:
        rows = conn.execute(running).all()
    return [row.lane for row in rows if row.lane is not None and not _lives(row.holder)]


def _lives(holder: str | None) -> bool:
    return holder is not None and ProcessIdentity.parse(holder).alive()
