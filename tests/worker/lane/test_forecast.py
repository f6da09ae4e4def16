"""What runs took and used: asked by index, however long the history is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event

from tests.worker.lane.conftest import NOON, ended, row_of, succeeded
from worker.database import Database
from worker.jobs.queue import enqueue
from worker.lane import ledger
from worker.lane.envelope import need_of, used_gb
from worker.lane.forecast import expected, share_left


@contextmanager
def plans(conn: Connection) -> Iterator[list[str]]:
    """How SQLite carries out each SELECT of the block."""
    found: list[str] = []

    def explain(_: Any, cursor: Any, statement: str, parameters: Any, *__: Any) -> None:
        if statement.startswith("SELECT"):
            rows = cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
            found.extend(row[3] for row in rows)

    event.listen(conn, "before_cursor_execute", explain)
    yield found
    event.remove(conn, "before_cursor_execute", explain)


def test_no_question_of_a_start_goes_through_the_history(db: Database) -> None:
    """Not one of them scans a table, or sorts."""
    done = enqueue(db, "tally", {"steps": 2}, actor="test")
    ended(db, done, at=NOON)
    succeeded(db, done)
    row = row_of(db, enqueue(db, "tally", {"steps": 3}, actor="test"))
    with db.read() as conn, plans(conn) as found:
        expected(conn, db.settings, row)
        need_of(conn, row)
        ledger.held(conn, "cpu")

    assert found
    tables = ("SCAN job", "SCAN attempt", "SCAN ledger")
    assert [step for step in found if step.startswith(tables) or "ORDER BY" in step] == []
    assert any("ix_job_kind_done" in step for step in found)


@pytest.mark.parametrize(
    ("result", "share"),
    [
        ({}, 1.0),
        ({"step": 0, "max_steps": 4}, 1.0),
        ({"step": 3, "max_steps": 4}, 0.25),
        ({"step": 9, "max_steps": 4}, 0.0),
        ({"step": "3", "max_steps": 4}, 1.0),
        ({"step": 3, "max_steps": 0}, 1.0),
    ],
)
def test_what_is_left_of_a_run_is_a_share(result: dict[str, Any], share: float) -> None:
    """Whatever an engine of another version wrote."""
    assert share_left(result) == share


@pytest.mark.parametrize(
    "trace", [None, {}, {"total_gb": 25}, {"total_gb": "x", "headroom_at_spawn_gb": 1}, 7]
)
def test_a_trace_that_says_too_little_says_nothing(trace: Any) -> None:
    """No number is better than a wrong one."""
    assert used_gb({"mem_trace": trace}) is None
