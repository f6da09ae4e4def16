"""Turns: the threads of a process write to SQLite one after another, and share the sync.

Group commit: who has ended its step hands the open transaction on to whoever waits. That one works
inside it under a savepoint of its own, so that a step that fails takes back its own rows alone.
Whoever finds nobody waiting commits for all of them, and none of them goes on before: what a step
wrote, what it saw, and why it was refused is on the disk when its caller hears of it. Then each
wakes the next: all at once they would take Python's lock from each other, and from whoever writes
by then. Without a second thread a step is a transaction like any other.

A step that is a function (`Turns.run`) is not even woken for its turn: whoever has the transaction
in hand calls it, and its own thread sleeps until the commit. Knows no table.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from sqlalchemy import Connection

from worker.db import dialects

MOST = 64
"""Steps in one transaction."""

LONGEST_S = 0.05
"""Seconds after which a transaction is committed, whoever waits: other programs write too."""

Answer = TypeVar("Answer")


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
        self.ended: deque[Step] = deque()
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
        """A context, when its turn has come: all or nothing, and the only writer in it.

        `patience_s`: how long it waits for its turn, and then for other programs. `alone`: in a
        transaction of its own. Raises NoTurnError; the context raises NotCommittedError, and what
        the database raises.
        """
        step = Step(self, patience_s, alone=alone)
        self._take(step, patience_s)
        return step

    def run(self, work: Callable[[Connection], Answer], patience_s: float) -> Answer:
        """`step` with a function for its body, which another thread may be the one to call.

        Returns what it returns, and raises what it raises besides.
        """
        step = Step(self, patience_s, work=work)
        self._take(step, patience_s)
        if step.served is not None:
            answer: Answer = step.outcome(step.served)
            return answer
        with step as conn:
            return work(conn)

    def _take(self, step: Step, patience_s: float) -> None:
        """Wait for the turn, or for the commit of whoever has served the step meanwhile."""
        try:
            with self._guard:
                if self.holder is None:
                    self.holder = step
                    return
                step.close_gate()
                self._waiting.append(step)
            came = step.gate.acquire(timeout=patience_s)
            if not came and not self._withdrawn(step):
                step.gate.acquire()  # called at the last moment, or being served
                came = True
            if step.served is not None:
                self._tell_next(step.served)
        except BaseException:
            if not self._withdrawn(step):
                if self.holder is step:
                    self.end(step, waits=False)
                else:
                    self.miss(step)
            raise
        if not came:
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
        """Serve who waits, and commit for all; or hand the transaction on and wait for its commit.

        `waits`: False for a step that is interrupted, and has nothing in it: it serves nobody and
        waits for nobody. Raises NotCommittedError, and what the commit raises.
        """
        shared = self._shared
        if shared is None:
            self._leave()
            return
        while (following := self._following(step, shared, waits=waits)) is not None:
            if self.holder is step:
                self._serve(following, shared)
                continue
            following.gate.release()
            if waits:
                self._await_commit(step, shared)
            return
        dialects.commit(shared.conn)
        self._keep(shared.conn)
        self._leave()

    def _following(self, step: Step, shared: _Shared, *, waits: bool) -> Step | None:
        """Who is next in the same transaction: to be served, or the holder by now.

        None: the transaction is to be committed.
        """
        with self._guard:
            if step.alone or not self._waiting or self._waiting[0].alone:
                return None
            if not shared.takes_more():
                return None
            following = self._waiting.popleft()
            if following.work is None or not waits:
                if waits:
                    step.close_gate()
                    shared.ended.append(step)
                self.holder = following
            return following

    def _serve(self, step: Step, shared: _Shared) -> None:
        """Another thread's function, under a savepoint like any step behind the first.

        Raises NotCommittedError when the whole transaction is lost by it.
        """
        assert step.work is not None
        step.served = shared
        shared.ended.append(step)
        try:
            dialects.execute(shared.conn, "SAVEPOINT step")
            try:
                step.answer = step.work(shared.conn)
            except Exception as error:
                step.error = error
                if not _taken_back(shared.conn):
                    raise
            else:
                dialects.execute(shared.conn, "RELEASE step")
        except BaseException as error:
            self.give_up(error)
            if not isinstance(error, Exception):
                raise
            raise NotCommittedError(error) from error

    def _await_commit(self, step: Step, shared: _Shared) -> None:
        """Raises NotCommittedError."""
        step.gate.acquire()
        self._tell_next(shared)
        if shared.error is not None:
            raise NotCommittedError(shared.error)

    def _tell_next(self, shared: _Shared) -> None:
        """Wake one of those that waited for a transaction that has ended; it wakes the next."""
        with self._guard:
            while shared.ended:
                step = shared.ended.popleft()
                step.told = shared
                if not step.gone:
                    break
            else:
                return
        step.gate.release()

    def miss(self, step: Step) -> None:
        """Its thread was interrupted while it waited for a commit: nobody is there to be told, and
        to tell the next.
        """
        with self._guard:
            step.gone = True
            told = step.told
        if told is not None:
            self._tell_next(told)

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
            following.gate.release()
        if shared is not None and shared.ended:
            self._tell_next(shared)


class Step:
    """One writer's part of a transaction, from `with` to the commit."""

    gate: threading.Lock
    """Opened when its turn has come, and when the transaction that it waits for has ended. Made
    when it has to wait.
    """
    served: _Shared | None = None
    """The transaction in which another thread has called `work`."""
    told: _Shared | None = None
    """The transaction that has ended, when it is this step's turn to hear of it."""
    gone = False
    """Whether its thread was interrupted while it waited for that."""
    answer: Any = None
    error: Exception | None = None
    _conn: Connection
    _joined: bool

    def __init__(
        self,
        turns: Turns,
        patience_s: float,
        *,
        alone: bool = False,
        work: Callable[[Connection], Any] | None = None,
    ) -> None:
        self._turns = turns
        self._patience_s = patience_s
        self.alone = alone
        self.work = work
        """What the thread that has the turn may call in place of this one."""

    def close_gate(self) -> None:
        """Before anybody can see that the step waits."""
        self.gate = threading.Lock()
        self.gate.acquire()

    def outcome(self, shared: _Shared) -> Any:
        """Of a step that was served, when its transaction has ended."""
        if shared.error is not None and shared.error is not self.error:
            raise NotCommittedError(shared.error)
        if self.error is not None:
            raise self.error
        return self.answer

    def __enter__(self) -> Connection:
        try:
            self._conn, self._joined = self._turns.enter(self._patience_s)
        except BaseException as error:
            self._turns.give_up(error)
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
            elif not self._joined or not _taken_back(self._conn):
                self._turns.give_up(error)
                return
            # One that was refused waits too: what it was refused for may not be written yet.
            self._turns.end(self, waits=isinstance(error, Exception | None))
        except BaseException as trouble:
            if self._turns.holder is self:
                self._turns.give_up(trouble)
            elif not isinstance(trouble, Exception):
                self._turns.miss(self)
            raise

    def _keep(self) -> None:
        if self._joined:
            dialects.execute(self._conn, "RELEASE step")
        elif not _is_open(self._conn):
            raise NotCommittedError(RuntimeError("SQLite has ended the transaction by itself"))


def _taken_back(conn: Connection) -> bool:
    """A step's own rows alone, to its savepoint. False: the whole transaction is lost."""
    if not _is_open(conn):
        return False
    dialects.execute(conn, "ROLLBACK TO step")
    dialects.execute(conn, "RELEASE step")
    return True


def _is_open(conn: Connection) -> bool:
    """SQLite ends a transaction by itself when its disk fails."""
    driver: Any = conn.connection.dbapi_connection
    return bool(driver.in_transaction)
