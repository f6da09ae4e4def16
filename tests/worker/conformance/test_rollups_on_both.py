"""Rollups on SQLite and on PostgreSQL: written with the rows."""

from __future__ import annotations

from tests.worker.db.test_metrics import by_hand, measured, started, stored, write
from worker.db.connection import Database
from worker.queue.submit import enqueue
from worker.read.series import curves


def test_rollups_follow_new_replaced_and_superseded_steps(db: Database) -> None:
    """The same statements on both."""
    number = enqueue(db, "tally", {}, actor="test", force=True)
    write(db, number, [measured(step, a__x=float(step % 7)) for step in range(2000)])
    write(db, number, [measured(11, a__x=99.0), measured(1999, a__x=-1.0)])
    assert stored(db) == by_hand(db)

    write(db, number, [started(1500), measured(1501, attempt=2, a__x=3.0)])

    assert stored(db) == by_hand(db)
    curve = curves(db, number, ["a/x"])["a/x"]
    assert (curve.size, curve.n, max(curve.highs)) == (2, 1502, 99.0)
