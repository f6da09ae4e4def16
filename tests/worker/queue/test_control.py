"""Cancel, requeue, retry, pause: what people do to jobs that exist."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from engine.contract.run_dir import Abort, AbortReason, RunDir, complete_checkpoints
from tests.deadline import eventually
from tests.worker.queue.verbs import begin, by_hand
from worker.attempt.settlement import Ending, Verdict, settle, settle_lost
from worker.attempt.writing import write_verdict
from worker.db.connection import Database
from worker.db.tables import job
from worker.drain import drain
from worker.queue import control, pausing
from worker.queue.control import Done
from worker.queue.lookup import JobNotFoundError
from worker.queue.refusals import WrongStateError
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.read import jobs
from worker.settings import WorkerSettings

Tally = Callable[..., int]
pytestmark = pytest.mark.requirement("JB-07")


def put(db: Database, **placement: Any) -> int:
    return enqueue(db, "tally", {}, actor="test", force=True, **placement)


def test_a_queued_job_is_cancelled_at_once_and_asking_again_says_so(db: Database) -> None:
    """The audit knows who; a job that is over otherwise has nothing to cancel."""
    number, other = put(db), put(db)

    assert control.cancel(db, number, actor="cli:ada") is Done.AT_ONCE
    assert control.cancel(db, number, actor="cli:ada") is Done.BEFORE

    row = jobs.get_job(db, number)
    assert (row.state, row.waits_for) == (State.CANCELLED, None)
    assert row.finished_at is not None
    assert [(e.actor, e.to_state) for e in jobs.audit(db, number)[1:]] == [
        ("cli:ada", State.CANCELLED)
    ]
    with by_hand(db) as hand:
        assert hand.run() == other
    with pytest.raises(WrongStateError, match=f"job {other} is succeeded; there is nothing left"):
        control.cancel(db, other, actor="test")


def test_a_running_job_gets_the_sentinel_with_the_reason(db: Database) -> None:
    """Its state is the supervisor's; asked twice, nothing more happens."""
    number = put(db)
    with by_hand(db) as hand:
        taken = hand.claim()
        assert taken is not None
        run = begin(db, taken)

        assert control.cancel(db, number, actor="cli:ada") is Done.ASKED
        assert control.cancel(db, number, actor="cli:ada") is Done.BEFORE

        abort = run.attempt(1).read_abort()
        assert abort is not None
        assert abort.reason is AbortReason.CANCEL
        row = jobs.get_job(db, number)
        assert (row.state, row.stop_requested) == (State.RUNNING, "cancel")
        assert jobs.audit(db, number)[-1].why == "asked to stop: cancel"


def test_a_cancel_outlives_whatever_ends_the_attempt_first(db: Database) -> None:
    """A rescue, a window's end or a signal would have queued the job again."""
    number = put(db)
    with by_hand(db) as hand:
        taken = hand.claim()
        assert taken is not None
        control.cancel(db, number, actor="test")
        settled = hand.settle(taken, State.QUEUED)

    assert settled.state is State.CANCELLED
    assert jobs.get_job(db, number).stop_requested is None


@pytest.mark.parametrize(
    ("verdict", "why"),
    [
        (settle(Ending(75, Abort(reason=AbortReason.REQUEUE), None, "")), "cancelled"),
        (
            settle(Ending(-9, Abort(reason=AbortReason.REQUEUE), None, "", overdue=True)),
            "cancelled; killed, its checkpoint did not come in time",
        ),
        (settle(Ending(75, Abort(reason=AbortReason.WINDOW), None, "")), "cancelled"),
        (
            settle(Ending(75, Abort(reason=AbortReason.MEMORY, headroom_gb=3.9), None, "")),
            "cancelled; stopped for memory at 3.9 GB",
        ),
        (settle_lost(0, 5), "cancelled; its supervisor or the machine died"),
    ],
)
def test_a_cancel_that_came_first_is_told_as_a_cancel(
    db: Database, verdict: Verdict, why: str
) -> None:
    """How the attempt ended stays; nobody reads that a cancelled job is put back or resumes."""
    number = put(db)
    with by_hand(db) as hand:
        taken = hand.claim()
        assert taken is not None
        control.cancel(db, number, actor="test")
        write_verdict(hand.lease, number, taken.attempt, verdict)

    last = jobs.audit(db, number)[-1]
    assert (last.to_state, last.why) == (State.CANCELLED, why)


def test_a_job_that_was_faster_than_its_cancel_keeps_its_result(db: Database) -> None:
    """What is done is done."""
    number = put(db)
    with by_hand(db) as hand:
        taken = hand.claim()
        assert taken is not None
        control.cancel(db, number, actor="test")
        hand.settle(taken, State.SUCCEEDED)

    assert jobs.get_job(db, number).state is State.SUCCEEDED


def test_a_cancel_whose_sentinel_cannot_be_written_is_remembered(db: Database) -> None:
    """In the database, where the supervisor finds it at its next heartbeat."""
    number = put(db)
    with by_hand(db) as hand:
        taken = hand.claim()
        assert taken is not None
        attempt = begin(db, taken).attempt(1)
        attempt.abort.mkdir()
        (attempt.root / f".abort.{os.getpid()}").mkdir()

        assert control.cancel(db, number, actor="test") is Done.ASKED

    assert jobs.get_job(db, number).stop_requested == "cancel"


def test_a_job_that_is_being_cancelled_is_not_put_back(db: Database) -> None:
    """The harder word counts; the other way round it replaces the softer one."""
    number = put(db)
    with by_hand(db) as hand:
        taken = hand.claim()
        assert taken is not None
        assert control.requeue(db, number, actor="test") is Done.ASKED
        assert control.requeue(db, number, actor="test") is Done.BEFORE
        assert control.cancel(db, number, actor="test") is Done.ASKED
        with pytest.raises(WrongStateError, match="is being cancelled; wait for its end"):
            control.requeue(db, number, actor="test")
        assert hand.settle(taken, State.QUEUED).state is State.CANCELLED


@pytest.mark.parametrize("end", [State.FAILED, State.CANCELLED, State.ABORTED])
def test_a_job_without_success_can_be_tried_again_as_itself(db: Database, end: State) -> None:
    """Same number, same directory, so it resumes; its chances count from new."""
    number, other = put(db), put(db)
    with by_hand(db) as hand:
        taken = hand.claim()
        assert taken is not None
        hand.settle(taken, end, cause="X", error="x", rescue=True, oom=True)

        control.retry(db, number, actor="cli:ada")

        row = jobs.get_job(db, number)
        assert (row.state, row.cause, row.error, row.finished_at) == (
            State.QUEUED,
            None,
            None,
            None,
        )
        assert row.attempt == 1
        assert hand.order() == [number, other]


def test_a_success_is_run_again_as_a_new_job(db: Database) -> None:
    """It stays on record; the copy takes its settings, name, tags and priority."""
    number = enqueue(db, "tally", {"steps": 2}, actor="test", name="n", tags=["a"], priority=4)
    with by_hand(db) as hand:
        hand.run()
    with pytest.raises(WrongStateError, match=f"is succeeded; run it again .* {number} --fresh"):
        control.retry(db, number, actor="test")

    again = control.retry_fresh(db, number, actor="cli:ada")

    row = jobs.get_job(db, again)
    assert (row.config["steps"], row.name, row.tags, row.priority) == (2, "n", ["a"], 4)
    assert (row.clone_of, row.state, row.attempt) == (number, State.QUEUED, 0)


def test_a_name_that_is_refused_today_is_kept_by_the_copy_of_its_job(db: Database) -> None:
    """Whoever wants the run again cannot rename the one that is over."""
    number = put(db)
    with by_hand(db) as hand:
        hand.run()
    with db.write_tx() as conn:
        conn.execute(update(job).values(name="a\nb"))

    again = control.retry_fresh(db, number, actor="test")

    assert jobs.get_job(db, again).name == "a\nb"


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        (control.retry, "is queued; it waits for its turn already"),
        (control.retry_fresh, "is queued; it waits for its turn already"),
    ],
)
def test_a_job_that_is_not_over_is_not_tried_again(
    db: Database, verb: Callable[..., Any], words: str
) -> None:
    """The line says what to do instead."""
    number = put(db)

    with pytest.raises(WrongStateError, match=words):
        verb(db, number, actor="test")

    with by_hand(db) as hand:
        hand.claim()
        with pytest.raises(WrongStateError, match=f"put it back with: cockpit requeue {number}"):
            verb(db, number, actor="test")


@pytest.mark.parametrize(
    ("end", "remedy"),
    [
        (State.SUCCEEDED, "run it again as a new job with: cockpit retry 1 --fresh"),
        (State.FAILED, "try it again with: cockpit retry 1"),
    ],
)
def test_a_job_that_is_over_is_not_put_back_and_says_what_works(
    db: Database, end: State, remedy: str
) -> None:
    """The command it names is one that is granted."""
    number = put(db)
    with by_hand(db) as hand:
        hand.run(end)

    with pytest.raises(WrongStateError, match=f"job 1 is {end}; {remedy}$"):
        control.requeue(db, number, actor="test")

    (control.retry_fresh if end is State.SUCCEEDED else control.retry)(db, number, actor="test")


@pytest.mark.parametrize("name", ["step-000001", "checkpoint-1"])
@pytest.mark.parametrize(
    ("complete", "begins"), [(True, "its last checkpoint"), (False, "the beginning")]
)
def test_the_audit_of_a_retry_says_from_where_it_goes_on(
    db: Database, complete: bool, begins: str, name: str
) -> None:
    """A checkpoint that is not there, or half there, is nothing to go on from, whoever wrote it."""
    number = put(db)
    with by_hand(db) as hand:
        hand.run(State.FAILED)
    folder = RunDir(db.settings.runs_dir / str(number)).checkpoints / name
    folder.mkdir(parents=True)
    if complete:
        (folder / "complete.json").write_text("{}")

    control.retry(db, number, actor="test")

    assert jobs.audit(db, number)[-1].why == f"tried again, from {begins}"


@pytest.mark.parametrize(
    "verb", [control.cancel, control.requeue, control.retry, control.retry_fresh]
)
def test_a_job_nobody_knows_is_an_error_with_the_way_out(
    db: Database, verb: Callable[..., Any]
) -> None:
    """The same words at every verb."""
    with pytest.raises(JobNotFoundError, match="job 7 does not exist"):
        verb(db, 7, actor="test")


def test_a_paused_queue_gives_nothing_out_and_says_who_paused_it(db: Database) -> None:
    """The first pause counts, until somebody resumes."""
    number = put(db)

    assert pausing.pause(db, actor="cli:ada", why="moving house")
    assert not pausing.pause(db, actor="cli:bob")

    waits = jobs.get_job(db, number).waits_for
    assert waits is not None
    assert (waits.reason, waits.detail) == (
        "PAUSED",
        "cli:ada paused the queue: moving house; to go on, run: cockpit resume",
    )
    with by_hand(db) as hand:
        assert hand.claim() is None
        assert pausing.resume(db, actor="ada")
        assert not pausing.resume(db, actor="ada")
        assert hand.run() == number


def test_a_drain_leaves_a_paused_queue_alone_and_says_so(
    db: Database, settings: WorkerSettings
) -> None:
    """It ends at once, and nothing was touched."""
    number = put(db)
    pausing.pause(db, actor="test")

    report = drain(settings)

    assert (report.ran, report.paused) == ([], True)
    assert jobs.get_job(db, number).attempt == 0


@pytest.mark.parametrize(
    ("verb", "state"), [(control.cancel, "cancelled"), (control.requeue, "succeeded")]
)
def test_a_running_engine_stops_at_a_checkpoint_when_it_is_asked_to(
    db: Database,
    tally: Tally,
    start_drain: Callable[..., Any],
    tmp_path: Path,
    verb: Callable[..., Any],
    state: str,
) -> None:
    """Cancelled it is over; put back it is resumed, here by the drain that put it back."""
    go = tmp_path / "go"
    number = tally(pace=str(go))
    running = start_drain()
    eventually(lambda: jobs.get_job(db, number).result.get("step"), "the first step")

    assert verb(db, number, actor="cli:ada") is Done.ASKED
    eventually(lambda: jobs.attempts(db, number), "the end of the attempt")
    go.touch()
    code, out, _ = running.finish()

    assert code == 0
    assert f"({number}, '{state}')" in out
    row = jobs.get_job(db, number)
    assert (row.state, row.attempt) == (State(state), 1 if state == "cancelled" else 2)
    assert complete_checkpoints(RunDir(row.run_dir))
