"""Group commit: threads share a transaction and its sync, and nothing else."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pytest
from sqlalchemy import Connection

from tests.deadline import eventually
from worker.db import dialects, turns
from worker.db.connection import Database, DatabaseError
from worker.queue.states import State
from worker.queue.submission import submission
from worker.queue.submit import Submitted, submit
from worker.read import jobs as views

Body = Callable[[Connection], object]
Form = Literal["block", "function"]


class Crew:
    """Threads that each make one step, in the order in which they were sent.

    Their steps are blocks or functions, in turns as `forms` says.
    """

    def __init__(self, db: Database, pool: ThreadPoolExecutor, forms: Sequence[Form]) -> None:
        self._db = db
        self._pool = pool
        self._forms = itertools.cycle(forms)

    def send(self, body: Body, *, form: Form | None = None, alone: bool = False) -> Sent:
        """Returns when its body runs, when it waits behind another one, or has given up."""
        sent = Sent()
        form = "block" if alone else form or next(self._forms)

        def work(conn: Connection) -> object:
            sent.thread = threading.get_ident()
            sent.inside.set()
            sent.go.wait(30)
            return body(conn)

        def act() -> object:
            sent.sender = threading.get_ident()
            if form == "function":
                return self._db.write(work)
            with self._db.write_tx(alone=alone) as conn:
                return work(conn)

        before = self.waiting()
        sent.future = self._pool.submit(act)
        eventually(
            lambda: sent.inside.is_set() or sent.future.done() or self.waiting() > before,
            "the step",
        )
        return sent

    def waiting(self) -> int:
        return len(self._db._turns._waiting)


class Sent:
    """One step on its way."""

    future: Future[object]
    sender: int
    thread: int
    """In which its body ran."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.go = threading.Event()


@pytest.fixture(
    params=[["block"], ["function"], ["block", "function"], ["function", "block"]],
    ids=" and ".join,
)
def crew(
    db: Database, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Crew]:
    """A machine may stall; the bound in time has a test of its own."""
    monkeypatch.setattr(turns, "LONGEST_S", 60.0)
    with ThreadPoolExecutor(16) as pool:
        yield Crew(db, pool, request.param)


def adds(topic: str) -> Body:
    return lambda conn: conn.exec_driver_sql("INSERT INTO change (topic) VALUES (?)", (topic,))


def fails(conn: Connection) -> None:
    adds("of a failed step")(conn)
    raise RuntimeError("half way")


def topics(db: Database) -> list[str]:
    with db.read() as conn:
        return list(conn.exec_driver_sql("SELECT topic FROM change ORDER BY id").scalars())


def test_steps_that_wait_share_a_commit_and_none_is_told_before_it(
    db: Database, crew: Crew
) -> None:
    """Until the last one's commit no reader sees a row, and no caller goes on."""
    first, second, third = (crew.send(adds(name)) for name in "abc")

    first.go.set()
    assert second.inside.wait(30)
    second.go.set()
    assert third.inside.wait(30)
    seen, told = topics(db), [one.future.done() for one in (first, second)]
    third.go.set()
    for one in (first, second, third):
        one.future.result(30)

    assert (seen, told) == ([], [False, False])
    assert topics(db) == ["a", "b", "c"]


def test_a_step_that_fails_takes_back_its_own_rows_alone(db: Database, crew: Crew) -> None:
    """First, in the middle or last: its error is its caller's, the others are written."""
    sent = [crew.send(body) for body in (fails, adds("a"), fails, adds("b"), fails)]

    for one in sent:
        one.go.set()
    ended = [one.future.exception(30) for one in sent]

    assert [str(error) if error else None for error in ended] == [
        "half way",
        None,
        "half way",
        None,
        "half way",
    ]
    assert topics(db) == ["a", "b"]


def test_a_commit_that_fails_is_everybodys_error(db: Database, crew: Crew) -> None:
    """Nothing is written, each is told so, and the next step finds the way free."""

    def breaks_the_commit(conn: Connection) -> None:
        conn.exec_driver_sql("PRAGMA defer_foreign_keys=ON")
        conn.exec_driver_sql("INSERT INTO job_tag (tag, job_id) VALUES ('x', 999)")

    sent = [crew.send(body) for body in (adds("a"), fails, breaks_the_commit)]
    for one in sent:
        one.go.set()
    ended = [one.future.exception(30) for one in sent]

    # Also of the one that was refused: what it was refused for is not written either.
    assert all("FOREIGN KEY constraint failed" in str(error) for error in ended)
    kinds = sorted(type(error).__name__ for error in ended)
    assert kinds == ["DatabaseError", "DatabaseError", "IntegrityError"]  # who committed
    assert topics(db) == []
    with db.write_tx() as conn:
        adds("later")(conn)
    assert topics(db) == ["later"]


def test_functions_that_wait_are_called_by_the_thread_that_writes(db: Database, crew: Crew) -> None:
    """Nobody is woken for his turn; what a function returns or raises goes to whoever sent it."""
    ahead = crew.send(adds("a"))
    answers = crew.send(lambda conn: adds("b")(conn) and "an answer", form="function")
    refused = crew.send(fails, form="function")
    for one in (ahead, answers, refused):
        one.go.set()

    assert answers.future.result(30) == "an answer"
    assert str(refused.future.exception(30)) == "half way"
    assert answers.thread == refused.thread == ahead.thread == ahead.sender
    assert len({one.sender for one in (ahead, answers, refused)}) == 3
    assert topics(db) == ["a", "b"]


def test_who_is_interrupted_serves_nobody(db: Database, crew: Crew) -> None:
    """Ctrl-C goes out at once; the others write for themselves, and it took back what was its."""

    def interrupted(conn: Connection) -> None:
        adds("never")(conn)
        raise KeyboardInterrupt

    ahead = crew.send(adds("a"), form="block")
    middle = crew.send(interrupted, form="block")
    last = crew.send(adds("b"), form="function")
    for one in (ahead, middle, last):
        one.go.set()

    assert isinstance(middle.future.exception(30), KeyboardInterrupt)
    assert [one.future.exception(30) for one in (ahead, last)] == [None, None]
    assert last.thread == last.sender
    assert topics(db) == ["a", "b"]


@pytest.mark.parametrize("form", ["block", "function"])
def test_who_is_interrupted_while_it_waits_for_a_commit_keeps_nobody_waiting(
    db: Database, crew: Crew, form: Form
) -> None:
    """One tells the next that the commit is made: Ctrl-C in the middle leaves a gap in the line."""
    running, go = threading.Event(), threading.Event()

    def work(conn: Connection) -> None:
        adds("b")(conn)
        running.set()
        go.wait(30 if form == "function" else 0)  # which runs in the thread of another one

    def interrupt(*_: object) -> None:
        if not struck.is_set():
            struck.set()
            raise KeyboardInterrupt

    def strike() -> bool:
        """Again and again: of a signal just before a thread falls asleep Python hears nothing
        until it wakes.
        """
        if not interrupted.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        return interrupted.is_set()

    def act() -> Sequence[Sent]:
        """While the main thread waits."""
        eventually(lambda: crew.waiting() == 1, "the main thread")
        behind = [crew.send(adds(name), form=form) for name in "cd"]
        ahead.go.set()
        assert running.wait(30)
        if form == "block":
            assert behind[0].inside.wait(30)
        eventually(strike, "the interrupt")
        go.set()
        for one in behind:
            one.go.set()
        return behind

    struck, interrupted = threading.Event(), threading.Event()
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        ahead = crew.send(adds("a"), form=form)
        with ThreadPoolExecutor(1) as pool:
            acting = pool.submit(act)
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the one or the other
                if form == "function":
                    db.write(work)
                else:
                    with db.write_tx() as conn:
                        work(conn)
            interrupted.set()
            behind = acting.result(30)
            assert [one.future.exception(30) for one in (ahead, *behind)] == [None] * 3
    finally:
        signal.signal(signal.SIGUSR1, before)
    # What it asked for is written all the same: the others' commit was its own.
    assert topics(db) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("behind", [False, True], ids=["with the turn", "in the line"])
def test_who_is_interrupted_as_it_comes_leaves_the_way_free(
    db: Database, crew: Crew, monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    """Ctrl-C between taking a place and waiting in it."""

    class Struck:
        """The guard, at whose end the interrupt comes: once, to the thread that made it."""

        def __init__(self, guard: threading.Lock) -> None:
            self._guard = guard
            self._whom: int | None = threading.get_ident()

        def __enter__(self) -> None:
            self._guard.acquire()

        def __exit__(self, *_: object) -> None:
            self._guard.release()
            if self._whom == threading.get_ident():
                self._whom = None
                raise KeyboardInterrupt

    ahead = crew.send(adds("a")) if behind else None
    monkeypatch.setattr(db._turns, "_guard", Struck(db._turns._guard))
    with pytest.raises(KeyboardInterrupt):
        db.write(adds("never"))
    waiting = crew.waiting()
    last = crew.send(adds("b"))
    others = [one for one in (ahead, last) if one]
    for one in others:
        one.go.set()

    assert [one.future.exception(30) for one in others] == [None] * len(others)
    assert waiting == 0
    assert topics(db) == (["a", "b"] if behind else ["b"])


def test_a_function_that_is_interrupted_is_everybodys_error(db: Database, crew: Crew) -> None:
    """Who called it was interrupted, at a moment that nobody knows: nothing is written."""

    def interrupted(conn: Connection) -> None:
        adds("never")(conn)
        raise KeyboardInterrupt

    sent = [crew.send(adds("a")), crew.send(interrupted, form="function")]
    for one in sent:
        one.go.set()
    ended = [one.future.exception(30) for one in sent]

    assert sorted(type(error).__name__ for error in ended) == ["DatabaseError", "KeyboardInterrupt"]
    assert topics(db) == []
    with db.write_tx() as conn:
        adds("later")(conn)
    assert topics(db) == ["later"]


def test_a_transaction_that_sqlite_ends_by_itself_is_the_error_of_all_in_it(
    db: Database, crew: Crew
) -> None:
    """As it does when the disk fails in the middle; also where a step did not notice."""

    def loses_it(conn: Connection) -> None:
        dialects.execute(conn, "ROLLBACK")

    for lonely in (False, True):
        sent = [crew.send(body) for body in ([loses_it] if lonely else [adds("a"), loses_it])]
        for one in sent:
            one.go.set()
        assert all(isinstance(one.future.exception(30), DatabaseError) for one in sent)

    with db.write_tx() as conn:
        adds("later")(conn)
    assert topics(db) == ["later"]


def test_a_repeated_request_is_answered_when_the_first_one_is_written(
    db: Database, crew: Crew
) -> None:
    """It sees the other's row before anybody may rely on it."""
    wanted = submission({"kind": "tally"})
    ahead = crew.send(adds("a"))
    with ThreadPoolExecutor(2) as pool:
        answers: list[Future[Submitted]] = []
        for behind in (1, 2):
            answers.append(pool.submit(submit, db, wanted, actor="test", key="same"))
            eventually(lambda behind=behind: crew.waiting() == behind, "the request")  # type: ignore[misc]
        last = crew.send(adds("b"))
        ahead.go.set()
        assert last.inside.wait(30)
        told = [answer.done() for answer in answers]
        last.go.set()
        job_ids = [answer.result(30).job_id for answer in answers]

    assert told == [False, False]
    assert job_ids == [1, 1]
    assert views.counts(db)[State.QUEUED] == 1


def test_a_killed_program_loses_only_what_nobody_was_told_of(db: Database) -> None:
    """One step is told, one waits for its commit, one works: `kill -9`."""
    code = """
import os, signal, sys, threading
from tests.deadline import eventually
from worker.db import turns
from worker.db.connection import open_database
from worker.queue.submit import enqueue
from worker.settings import WorkerSettings

turns.LONGEST_S = 60.0  # a machine may stall
with open_database(WorkerSettings()) as db:
    def send(seed):
        print(enqueue(db, "tally", {"seed": seed}, actor="test"), flush=True)

    send(1)
    waiting = db._turns._waiting
    with db.write_tx():
        threading.Thread(target=send, args=(2,), daemon=True).start()
        eventually(lambda: len(waiting) == 1, "the second")
        def last():
            with db.write_tx() as conn:
                assert conn.exec_driver_sql("SELECT count(*) FROM job").scalar_one() == 2
                os.kill(os.getpid(), signal.SIGKILL)
        threading.Thread(target=last, daemon=True).start()
        eventually(lambda: len(waiting) == 2, "the third")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )

    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "1\n"), done.stderr
    assert [found.id for found in views.list_jobs(db)] == [1]
    with db.read() as conn:
        assert conn.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"


def test_who_comes_later_cannot_put_a_commit_off_for_ever(
    db: Database, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction is full after so many steps; the next one begins behind its commit."""
    monkeypatch.setattr(turns, "MOST", 2)
    first, second, third = (crew.send(adds(name)) for name in "abc")

    first.go.set()
    second.go.set()
    assert third.inside.wait(30)
    seen = topics(db)
    third.go.set()

    assert seen == ["a", "b"]
    assert third.future.exception(30) is None


@pytest.mark.parametrize("why", ["too old", "the first is alone", "the second is alone"])
def test_a_step_begins_anew_behind_one_that_does_not_share(
    db: Database, crew: Crew, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """A transaction that is open for long holds up other programs; a long step the one before."""
    if why == "too old":
        monkeypatch.setattr(turns, "LONGEST_S", 0.0)
    first = crew.send(adds("a"), alone=why == "the first is alone")
    second = crew.send(adds("b"), alone=why == "the second is alone")

    first.go.set()
    assert second.inside.wait(30)
    seen = topics(db)
    second.go.set()

    assert seen == ["a"]
    assert second.future.exception(30) is None


def test_who_gives_up_waiting_leaves_the_others_as_they_are(
    db: Database, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction is not handed to a thread that is gone."""
    first = crew.send(adds("a"))
    with monkeypatch.context() as changed:
        changed.setattr(dialects, "PATIENCE_S", 0.01)
        gone = crew.send(adds("b"))
        refusal = gone.future.exception(30)
    third = crew.send(adds("c"))
    for one in (first, third):
        one.go.set()

    assert isinstance(refusal, DatabaseError)
    assert refusal.retryable
    assert "another thread of this program has kept it locked" in str(refusal)
    assert [one.future.exception(30) for one in (first, third)] == [None, None]
    assert topics(db) == ["a", "c"]
