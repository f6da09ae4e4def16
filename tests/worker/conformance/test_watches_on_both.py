"""Watched runs are kept, taken and closed alike on every database."""

from __future__ import annotations

from tests.worker.read.scored import job
from worker.db.connection import Database
from worker.queue import watches
from worker.queue.watches import Taken


def test_a_watch_is_one_row_for_each_list_of_benches(db: Database) -> None:
    """Asked again it is opened again; the steps that are taken stay with it."""
    run = job(db)
    first = {"benches": [{"name": "a"}], "every": 2, "priority": -100}
    with db.write_tx() as conn:
        one = watches.add(conn, run, first, actor="ada")
        other = watches.add(conn, run, first | {"benches": [{"name": "b"}]}, actor="ada")
        watches.take(conn, watches.get(conn, one), {0: Taken(7, "m0")})
        watches.take(conn, watches.get(conn, one), {2: Taken(8, "m2")})
        watches.close(conn, watches.get(conn, one), "gone")
        watches.close(conn, watches.get(conn, other))

    with db.read() as conn:
        assert watches.runs_watched(conn) == []
        found = watches.of_run(conn, run)
    assert [(each.id, each.problem) for each in found] == [(one, "gone"), (other, None)]
    assert found[0].steps == {0: Taken(7, "m0"), 2: Taken(8, "m2")}
    assert found[0].jobs == [7, 8]

    with db.write_tx() as conn:
        assert watches.add(conn, run, first | {"every": 4}, actor="bob") == one
        again = watches.get(conn, one)
        assert watches.runs_watched(conn) == [run]
    assert (again.evaluate["every"], again.closed_at, again.problem) == (4, None, None)
    assert [*again.steps] == [0, 2]
    with db.write_tx() as conn:
        watches.close(conn, again)
        watches.reopen(conn, run)
        assert all(each.closed_at is None for each in watches.of_run(conn, run))
