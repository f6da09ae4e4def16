"""Turns: the threads of a process write to SQLite one after another, and share the sync.

Group commit: who has ended its step hands the open transaction on to whoever waits. That one works
inside it under a savepoint of its own, so that a step that fails takes back its own rows alone.
Whoever finds nobody waiting commits for all of them, and none of them goes on before: what a step
wrote, what it saw, and why it was refused is on the disk when its caller hears of it. Without a
second thread a step is a transaction like any other. Knows no table.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any

from sqlalchemy import Connection

from worker import dialects

MOST = 64
"""Steps in one transaction."""

LONGEST_S = 0.05
"""Seconds after which a transaction is committed, whoever waits: other programs write too."""


class NoTurnError(Exception):
    """Another thread did not end its step in time."""


class NotCommittedError(Exception):
    """The transaction that a step was part of failed behind it: nothing of the step is written."""

    def __init__(self, cause: BaseException) -> None:
        self.cause = cause
        super().__init__(str(cause))


class _Shared:
    """An open transaction, and the steps in it that have ended and wait for its commit."""

    __slots__ = ("conn", "ended", "error", "opened")

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self.opened = time.monotonic()
        self.ended: list[Step] = []
        self.error: BaseException | None = None
        """Why it was not committed."""

    def takes_more(self) -> bool:
        return len(self.ended) + 1 < MOST and time.monotonic() - self.opened < LONGEST_S

    def roll_back(self) -> None:
        """Whatever is left of it; the connection goes back to SQLAlchemy, or away."""
        driver: Any = self.conn.connection
        try:
            driver.rollback()
        except self.conn.dialect.loaded_dbapi.Error as error:
            self.conn.invalidate(error)
        self.conn.close()


class Turns:
    """The line in front of one database: first come, first served."""

    def __init__(
        self, open_: Callable[[float], Connection], keep: Callable[[Connection], None]
    ) -> None:
        """`open_`: a connection with a transaction that may write, after a wait of so many seconds
        at most. `keep` takes the connection back when that has committed.
        """
        self._open = open_
        self._keep = keep
        self._guard = threading.Lock()
        self._waiting: deque[Step] = deque()
        self.holder: Step | None = None
        """Who has the turn; all below is only for that one."""
        self._shared: _Shared | None = None

    def step(self, patience_s: float, *, alone: bool) -> Step:
        """A context: all or nothing, and the only writer from its beginning on.

        `patience_s`: how long it waits for its turn, and then for other programs. `alone`: in a
        transaction of its own. It raises NoTurnError, NotCommittedError, and what the database
        raises.
        """
        return Step(self, patience_s, alone=alone)

    def take(self, step: Step, patience_s: float) -> None:
        """Wait for the turn. Raises NoTurnError."""
        with self._guard:
            if self.holder is None:
                self.holder = step
                return
            step.called = _closed()
            self._waiting.append(step)
        try:
            called = step.called.acquire(timeout=patience_s)
        except BaseException:
            if not self._withdrawn(step):
                self.end(step, waits=False)
            raise
        if not called and self._withdrawn(step):
            raise NoTurnError

    def _withdrawn(self, step: Step) -> bool:
        """False: its turn has come meanwhile."""
        with self._guard:
            if step not in self._waiting:
                return False
            self._waiting.remove(step)
            return True

    def enter(self, patience_s: float) -> tuple[Connection, bool]:
        """With the turn: (the transaction's connection, whether others have written in it)."""
        if self._shared is None:
            self._shared = _Shared(self._open(patience_s))
            return self._shared.conn, False
        dialects.execute(self._shared.conn, "SAVEPOINT step")
        return self._shared.conn, True

    def end(self, step: Step, *, waits: bool) -> None:
        """Hand the transaction on and wait for its commit, or commit it for all.

        `waits`: False for a step that is interrupted, and has nothing in it. Raises
        NotCommittedError, and what the commit raises.
        """
        shared = self._shared
        following = self._following(step, shared, waits=waits)
        if following is not None:
            following.called.release()
        elif shared is not None:
            dialects.commit(shared.conn)
            self._keep(shared.conn)
            self._leave()
        else:
            self._leave()
        if following is not None and waits:
            self._await_commit(step, shared)

    def _following(self, step: Step, shared: _Shared | None, *, waits: bool) -> Step | None:
        """Whose turn it is now in the same transaction; None: it is to be committed."""
        with self._guard:
            if shared is None or step.alone or not self._waiting or self._waiting[0].alone:
                return None
            if not shared.takes_more():
                return None
            if waits:
                step.committed = _closed()
                shared.ended.append(step)
            self.holder = self._waiting.popleft()
            return self.holder

    @staticmethod
    def _await_commit(step: Step, shared: _Shared | None) -> None:
        step.committed.acquire()
        if shared is not None and shared.error is not None:
            raise NotCommittedError(shared.error)

    def give_up(self, error: BaseException) -> None:
        """The transaction is lost, with every step in it; the turn goes on."""
        shared = self._shared
        try:
            if shared is not None:
                shared.error = error
                shared.roll_back()
        finally:
            self._leave()

    def _leave(self) -> None:
        """The next one begins anew; who waited for this transaction goes on."""
        shared, self._shared = self._shared, None
        with self._guard:
            following = self.holder = self._waiting.popleft() if self._waiting else None
        if following is not None:
            following.called.release()
        if shared is not None:
            for step in shared.ended:
                step.committed.release()


class Step:
    """One writer's part of a transaction, from `with` to the commit."""

    __slots__ = ("_conn", "_joined", "_patience_s", "_turns", "alone", "called", "committed")

    def __init__(self, turns: Turns, patience_s: float, *, alone: bool) -> None:
        self._turns = turns
        self._patience_s = patience_s
        self.alone = alone
        self.called: threading.Lock
        """Opened when its turn has come, for one that waits."""
        self.committed: threading.Lock
        """Opened when its transaction has ended, for one that handed it on."""

    def __enter__(self) -> Connection:
        turns = self._turns
        turns.take(self, self._patience_s)
        try:
            self._conn, self._joined = turns.enter(self._patience_s)
        except BaseException as error:
            turns.give_up(error)
            raise
        return self._conn

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._keep()
            elif not self._taken_back():
                self._turns.give_up(error)
                return
            # One that was refused waits too: what it was refused for may not be written yet.
            self._turns.end(self, waits=isinstance(error, Exception | None))
        except BaseException as trouble:
            if self._turns.holder is self:
                self._turns.give_up(trouble)
            raise

    def _keep(self) -> None:
        if self._joined:
            dialects.execute(self._conn, "RELEASE step")
        elif not _is_open(self._conn):
            raise NotCommittedError(RuntimeError("SQLite has ended the transaction by itself"))

    def _taken_back(self) -> bool:
        """Its own rows alone. False: the whole transaction is to be given up."""
        if not self._joined or not _is_open(self._conn):
            return False
        dialects.execute(self._conn, "ROLLBACK TO step")
        dialects.execute(self._conn, "RELEASE step")
        return True


def _is_open(conn: Connection) -> bool:
    """SQLite ends a transaction by itself when its disk fails."""
    driver: Any = conn.connection.dbapi_connection
    return bool(driver.in_transaction)


def _closed() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock
