"""The database's stamp: what is kept beside it is asked again after every write, and only then."""

from __future__ import annotations

from worker.db.connection import Database, open_database
from worker.queue import pausing
from worker.read import jobs as views


def test_a_stamp_changes_with_every_write_of_any_program_and_with_no_look(db: Database) -> None:
    """Also with a write by the same program: it asks on a connection that never writes."""
    first = db.stamp()
    views.counts(db)
    assert db.stamp() == first

    pausing.pause(db, actor="test")
    second = db.stamp()
    assert second != first

    with open_database(db.settings) as other:
        pausing.resume(other, actor="test")
    assert db.stamp() not in {first, second}
