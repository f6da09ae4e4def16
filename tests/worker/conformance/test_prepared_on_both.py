"""Prepared statements, on either database."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from worker.db.connection import Database
from worker.db.prepared import Prepared
from worker.db.tables import job, job_tag, queue_pause
from worker.queue.submit import enqueue


def test_a_prepared_select_reads_what_sqlalchemy_reads(db: Database, enqueued: int) -> None:
    """Documents are documents, numbers are numbers, and what is absent is None."""
    where = job.c.id == bindparam("the_job")

    with db.read() as conn:
        row = Prepared(select(job).where(where)).one(conn, {"the_job": enqueued})
        told = conn.execute(select(job).where(where), {"the_job": enqueued}).one()

    assert row._asdict() == told._asdict()
    assert row.config == {"steps": 3, "seed": 0} | row.config
    assert row.error is None


def test_a_prepared_write_tells_how_many_rows_it_changed(db: Database, enqueued: int) -> None:
    """Zero is how a fence says no."""
    later = Prepared(
        update(job).where(job.c.id == bindparam("the_job")).values(rank=bindparam("to"))
    )

    with db.write_tx() as conn:
        changed = [later.run(conn, {"the_job": n, "to": 7.5}) for n in (enqueued, enqueued + 1)]

    assert changed == [1, 0]


def test_a_prepared_insert_fills_the_columns_that_its_first_call_names(db: Database) -> None:
    """A call with others is a mistake of ours, and nothing is written."""
    pause = Prepared(insert(queue_pause).returning(queue_pause.c.why))
    row = {"id": 1, "at": 5.0, "actor": "ada", "why": "50 % of it's «broken»"}

    with db.write_tx() as conn:
        assert pause.one(conn, row).why == row["why"]
    with pytest.raises(AssertionError, match="more"), db.write_tx() as conn:
        pause.run(conn, row | {"more": 1})


def test_a_prepared_statement_fails_like_any_other(db: Database) -> None:
    """A broken constraint is SQLAlchemy's error, and the transaction is gone."""
    tag = Prepared(insert(job_tag))

    with pytest.raises(IntegrityError), db.write_tx() as conn:
        tag.run(conn, {"tag": "night", "job_id": 1_000})

    with db.read() as conn:
        assert conn.execute(select(job_tag)).all() == []


def test_who_waits_for_a_write_is_woken_by_it_or_by_the_clock(db: Database) -> None:
    """PostgreSQL does not say that somebody wrote: there the clock alone wakes."""
    db.await_write(0.01)  # from here on it knows what was written
    woken_by_clock = _seconds(lambda: db.await_write(0.05))
    enqueue(db, "tally", {}, actor="test")
    woken_by_write = _seconds(lambda: db.await_write(5.0 if db.dialect == "sqlite" else 0.05))

    assert woken_by_clock >= 0.05
    assert woken_by_write < 4.0


@pytest.fixture
def enqueued(db: Database) -> int:
    return enqueue(db, "tally", {}, actor="test")


def _seconds(act: Callable[[], None]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began
