"""That somebody has written is noticed without a look: by a drain that waits, by what is kept."""

from __future__ import annotations

import time
from collections.abc import Callable

from worker.db.connection import Database, open_database
from worker.queue import pausing
from worker.queue.submit import enqueue
from worker.read import jobs


def test_who_waits_for_a_write_is_woken_by_it_or_by_the_clock(db: Database) -> None:
    """PostgreSQL does not say that somebody wrote: there the clock alone wakes."""
    db.await_write(0.01)  # from here on it knows what was written
    woken_by_clock = _seconds(lambda: db.await_write(0.05))
    enqueue(db, "tally", {}, actor="test")
    woken_by_write = _seconds(lambda: db.await_write(5.0 if db.dialect == "sqlite" else 0.05))

    assert woken_by_clock >= 0.05
    assert woken_by_write < 4.0


def test_a_stamp_changes_with_every_write_of_any_program_and_with_no_look(db: Database) -> None:
    """Also with a write by the same program; on PostgreSQL there is none, so nothing is kept."""
    first = db.stamp()
    jobs.counts(db)
    assert db.stamp() == first

    pausing.pause(db, actor="test")
    second = db.stamp()

    with open_database(db.settings) as other:
        pausing.resume(other, actor="test")
    third = db.stamp()
    if db.dialect == "sqlite":
        assert len({first, second, third}) == 3
    else:
        assert {first, second, third} == {None}


def _seconds(act: Callable[[], None]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began
