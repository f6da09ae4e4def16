"""How the attempts of a job before this one ended, as far as a verdict goes by it. Reads rows."""

from __future__ import annotations

import itertools

from sqlalchemy import select

from worker.db.connection import Database
from worker.db.tables import attempt


def in_a_row(db: Database, job_id: int, cause: str, most: int) -> int:
    """How many of the newest attempts, one after the other, were ended by `cause`; up to `most`."""
    newest = (
        select(attempt.c.cause)
        .where(attempt.c.job_id == job_id)
        .order_by(attempt.c.n.desc())
        .limit(most)
    )
    with db.read() as conn:
        causes = conn.execute(newest).scalars().all()
    return len(list(itertools.takewhile(lambda found: found == cause, causes)))
