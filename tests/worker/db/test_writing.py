"""One writer at a time, and what it wrote is on the disk before anybody hears of it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from worker.db.connection import Database, DatabaseError
from worker.read import jobs


def add(conn: Connection, topic: str) -> None:
    conn.exec_driver_sql("INSERT INTO change (topic) VALUES (?)", (topic,))


def topics(db: Database) -> list[str]:
    with db.read() as conn:
        return list(conn.exec_driver_sql("SELECT topic FROM change ORDER BY id").scalars())


def fails(_: Connection) -> None:
    raise RuntimeError("half way")


def is_interrupted(_: Connection) -> None:
    raise KeyboardInterrupt("Ctrl-C")


def breaks_the_commit(conn: Connection) -> None:
    conn.exec_driver_sql("PRAGMA defer_foreign_keys=ON")
    conn.exec_driver_sql("INSERT INTO job_tag (tag, job_id) VALUES ('x', 999)")


def loses_the_transaction(conn: Connection) -> None:
    """As SQLite ends one by itself when its disk fails in the middle; the step did not notice."""
    conn.exec_driver_sql("ROLLBACK")


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (fails, RuntimeError, "half way"),
        (is_interrupted, KeyboardInterrupt, "Ctrl-C"),
        (breaks_the_commit, IntegrityError, "FOREIGN KEY constraint failed"),
        (loses_the_transaction, DatabaseError, "has ended the transaction by itself"),
    ],
)
def test_a_step_that_is_not_committed_is_an_error_and_leaves_the_way_free(
    db: Database, body: Callable[[Connection], None], error: type[BaseException], text: str
) -> None:
    """Nothing of it is written, its caller hears of it, and the next one writes."""

    def step() -> None:
        with db.write_tx() as conn:
            add(conn, "never")
            body(conn)

    with pytest.raises(error, match=text):
        step()

    with db.write_tx() as conn:
        add(conn, "later")
    assert topics(db) == ["later"]


def test_who_waits_too_long_for_another_thread_is_told_so(db: Database) -> None:
    """And the thread that writes is not disturbed by it."""
    refused: list[DatabaseError] = []

    def wait() -> None:
        with pytest.raises(DatabaseError) as error, db.write_tx(patience_s=0.01):
            pass
        refused.append(error.value)

    with db.write_tx() as conn:
        add(conn, "ahead")
        other = threading.Thread(target=wait)
        other.start()
        other.join(30)

    assert "another thread of this program has kept it locked" in str(refused[0])
    assert refused[0].retryable
    assert topics(db) == ["ahead"]


def test_a_killed_program_loses_only_what_nobody_was_told_of(db: Database) -> None:
    """One request is answered; the next one is killed before its commit, while the same request
    waits behind it: that one is told nothing either.
    """
    code = """
import os, signal, threading
from tests.deadline import eventually
from worker.db.connection import open_database
from worker.queue import keys
from worker.queue.submit import enqueue
from worker.settings import WorkerSettings

class Noted:
    asked = 0
    def __init__(self, lock):
        self.acquire_, self.release = lock.acquire, lock.release
    def acquire(self, timeout):
        self.asked += 1
        return self.acquire_(timeout=timeout)

with open_database(WorkerSettings()) as db:
    def send(seed):
        number = enqueue(db, "tally", {"seed": seed}, actor="test", key=f"key {seed}")
        print(number, flush=True)

    remember = keys.remember
    def killed(conn, key, *more):
        remember(conn, key, *more)
        if key == "key 2":
            threading.Thread(target=send, args=(2,), daemon=True).start()
            eventually(lambda: noted.asked == 3, "the same request, waiting")
            os.kill(os.getpid(), signal.SIGKILL)

    noted = db._writing = Noted(db._writing)
    keys.remember = killed
    send(1)
    send(2)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )

    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "1\n"), done.stderr
    assert [found.id for found in jobs.list_jobs(db)] == [1]
    with db.read() as conn:
        assert conn.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
