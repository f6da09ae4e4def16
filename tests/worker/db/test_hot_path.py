"""What the steps that every job takes cost, in things that can be counted."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.worker.queue.verbs import by_hand
from worker.db import dialects
from worker.db.connection import Database, url_of
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.settings import WorkerSettings

FRAME = 24 + 4096
"""Bytes of one page in SQLite's log."""


class _Log:
    """SQLite's log, which a fresh database writes for some hundred commits without a turn."""

    def __init__(self, settings: WorkerSettings) -> None:
        (self._path,) = settings.data_dir.glob("*-wal")
        self._size = 0
        self.pages()

    def pages(self) -> int:
        """How many were written since the last time."""
        before, self._size = self._size, self._path.stat().st_size
        return (self._size - before) // FRAME


def test_the_commits_of_a_job_write_few_pages(db: Database) -> None:
    """Each index that a step has to keep costs every job a page: a new one is to be worth it."""
    put = partial(enqueue, db, "tally", {}, actor="test", force=True)
    with by_hand(db) as hand:
        put()
        log = _Log(db.settings)

        put()
        assert log.pages() == 8

        taken = hand.claim()
        assert taken is not None
        assert log.pages() == 8

        hand.settle(taken, State.SUCCEEDED)
        assert log.pages() == 14


def test_a_connection_keeps_more_statements_compiled_than_the_program_has(db: Database) -> None:
    """Also behind a migration's hundred, or two that come later push each other out for ever."""
    compiled: list[int] = []

    def note(action: int, *_: Any) -> int:
        compiled.append(action)
        return 0

    with dialects.connect(url_of(db.settings)).connect() as conn:
        driver: Any = conn.connection.dbapi_connection
        driver.set_authorizer(note)  # asked whenever a statement is compiled, and only then
        for _ in range(2):
            seen, compiled[:] = list(compiled), []
            for number in range(400):
                dialects.execute(conn, f"SELECT {number}").fetchall()

    assert len(seen) == 400
    assert compiled == []


def test_what_a_statement_gives_back_is_of_that_statement_alone(db: Database) -> None:
    """One cursor takes all statements of a connection, with rows of the one before unread too."""
    with db.read() as conn:
        first = dialects.execute(conn, "SELECT 1 UNION SELECT 2").fetchone()
        second = dialects.execute(conn, "SELECT 'a', NULL").fetchall()
        with_null = dialects.execute(conn, "SELECT ?, ? IS NULL", (None, None)).fetchall()

    assert first == (1,)
    assert second == [("a", None)]
    assert with_null == [(None, 1)]
