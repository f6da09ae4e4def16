"""A takeover that its victim cannot notice: the fence moves on, the process lives on.

In the product a takeover kills the old holder first; this is what would be left if that could not
be done (a holder in another container). Then only the fence stands between two writers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import func, select, update

from tools.storm.moments import Phase, moment
from worker.db.connection import Database
from worker.db.tables import job, job_event, lane
from worker.queue.states import State


class Taken(NamedTuple):
    """The rows right behind the takeover."""

    phase: Phase | None
    job_id: int
    row: dict[str, Any] | None
    last_audit: int


def usurp(db: Database, name: str) -> Taken:
    """Move the fence of lane and running job, as a takeover does, in one transaction."""
    seen = moment(db, name)
    with db.write_tx() as conn:
        moved = update(lane).where(lane.c.name == name)
        conn.execute(moved.values(fence=lane.c.fence + 1))
        fence = conn.execute(select(lane.c.fence).where(lane.c.name == name)).scalar_one()
        running = (job.c.lane == name) & (job.c.state == State.RUNNING)
        conn.execute(update(job).where(running).values(fence=fence))
        found = conn.execute(select(job).where(running)).mappings().first()
        last = conn.execute(select(func.max(job_event.c.id))).scalar_one()
    row = dict(found) if found else None
    phase = seen.phase if (row["id"] if row else 0) == seen.job_id else None
    return Taken(phase, row["id"] if row else 0, row, last or 0)


def written_since(db: Database, taken: Taken, pid: int) -> list[str]:
    """What the late supervisor still wrote: must be nothing."""
    with db.read() as conn:
        later = select(job_event).where(
            job_event.c.id > taken.last_audit, job_event.c.actor == f"drain:{pid}"
        )
        wrong = [f"a stale writer moved job {row.job_id}" for row in conn.execute(later)]
        if taken.row is not None:
            now = conn.execute(select(job).where(job.c.id == taken.job_id)).mappings().one()
            if dict(now) != taken.row:
                changed = [key for key, value in now.items() if taken.row[key] != value]
                wrong.append(f"a stale writer changed {changed} of job {taken.job_id}")
    return wrong
