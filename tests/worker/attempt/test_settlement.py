"""Exit status and sentinel decide where a job goes."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from engine.contract.registry import make_smaller
from engine.contract.run_dir import Abort, AbortReason, ExitCode
from worker.attempt.settlement import (
    DISK_PAUSE_S,
    SERVER_PAUSE_MOST_S,
    SERVER_PAUSE_S,
    Ending,
    settle,
    settle_lost,
)
from worker.queue.deferral import Deferral, Reason
from worker.queue.states import State


def ending(status: int, **known: Any) -> Ending:
    return Ending(
        **{"abort": None, "finished": None, "last_words": "", **known}, exit_status=status
    )


@pytest.mark.parametrize(
    ("reason", "state", "cause", "later"),
    [
        (AbortReason.CANCEL, State.CANCELLED, None, False),
        (AbortReason.BUDGET, State.QUEUED, None, True),
        (AbortReason.WINDOW, State.QUEUED, None, True),
        (AbortReason.SIGTERM, State.QUEUED, None, False),
        (AbortReason.SILENT, State.QUEUED, None, False),
        (AbortReason.MEMORY, State.QUEUED, None, False),
        (AbortReason.OPERATOR, State.ABORTED, "OPERATOR", False),
    ],
)
def test_the_reason_of_a_stop_decides_the_state(
    reason: AbortReason, state: State, cause: str | None, later: bool
) -> None:
    """The reason decides, with a checkpoint and without one."""
    for status, overdue in ((ExitCode.ABORTED, False), (-signal.SIGKILL, True)):
        verdict = settle(ending(status, abort=Abort(reason=reason), overdue=overdue))
        assert (verdict.to, verdict.cause, verdict.later) == (state, cause, later)


@pytest.mark.parametrize("reason", list(AbortReason))
def test_who_killed_an_engine_is_said(reason: AbortReason) -> None:
    """The watchdog waits for no checkpoint; the supervisor kills what lets it wait too long."""
    abort = Abort(reason=reason)

    guarded = settle(ending(-signal.SIGKILL, abort=abort, guarded=True))
    overdue = settle(ending(-signal.SIGKILL, abort=abort, overdue=True))
    by_itself = settle(ending(ExitCode.ABORTED, abort=abort))

    assert "the memory watchdog killed it" in guarded.why
    assert "in time" not in guarded.why
    assert "killed, its checkpoint did not come in time" in overdue.why
    assert "killed" not in by_itself.why


def test_a_kill_for_memory_without_a_sentinel_is_one_for_memory() -> None:
    """On a full disk the watchdog's request cannot be written; the kill is told all the same."""
    verdict = settle(ending(-signal.SIGKILL, guarded=True))

    assert (verdict.to, verdict.oom, verdict.interrupted) == (State.QUEUED, True, "MEMORY")
    assert "stopped for memory; the memory watchdog killed it" in verdict.why


def test_the_second_stop_for_memory_ends_the_job() -> None:
    """Queued once more, then aborted with what to make smaller."""
    abort = Abort(reason=AbortReason.MEMORY, headroom_gb=3.9)

    smaller = make_smaller("stage2_ab")

    verdicts = [
        settle(ending(75, abort=abort, oom_deferred=before, make_smaller=smaller))
        for before in (0, 1)
    ]

    assert [verdict.to for verdict in verdicts] == [State.QUEUED, State.ABORTED]
    assert all(verdict.oom for verdict in verdicts)
    assert verdicts[1].error is not None
    assert "lower training.per_device_train_batch_size, " in verdicts[1].error


@pytest.mark.parametrize(
    ("status", "words"),
    [(1, "exit 1"), (-11, "killed by SIGSEGV"), (-60, "killed by signal 60"), (137, "exit 137")],
)
def test_any_other_status_is_a_crash_in_words(status: int, words: str) -> None:
    """The last line of the log is the best explanation there is."""
    verdict = settle(ending(status, last_words="MemoryError"))

    assert (verdict.to, verdict.cause) == (State.FAILED, "CRASH")
    assert verdict.error == f"the engine crashed ({words}): MemoryError; see its engine.log"


def test_a_crash_is_a_crash_although_a_stop_was_requested() -> None:
    """Only the status of an orderly stop, or our own kill, makes it one."""
    verdict = settle(ending(1, abort=Abort(reason=AbortReason.SIGTERM)))

    assert verdict.cause == "CRASH"


def test_a_refused_config_fails_with_the_engines_words() -> None:
    """The engine explains itself in one line."""
    verdict = settle(ending(ExitCode.CONFIG, last_words="lr: must be 0 or more; use 1e-6"))

    assert (verdict.cause, verdict.error) == ("CONFIG", "lr: must be 0 or more; use 1e-6")


@pytest.mark.parametrize(("lost_before", "state"), [(0, "queued"), (3, "queued"), (4, "failed")])
def test_lost_attempts_are_capped(lost_before: int, state: str) -> None:
    """Five by default."""
    assert settle_lost(lost_before, max_attempts=5).to == state


def test_a_crash_on_a_full_disk_waits_for_room_and_says_so() -> None:
    """There was no room for the reason either: the log is empty. An orderly end stays one."""
    full = "0.0 MB free at /runs/7"

    verdict = settle(ending(1, full_disk=full), now=100.0)

    assert (verdict.to, verdict.cause, verdict.later) == (State.QUEUED, None, True)
    assert verdict.why == f"the engine crashed (exit 1) on a full disk: {full}; to resume"
    assert verdict.deferral == Deferral(
        Reason.DISK_FULL,
        f"the disk of its run directory is full ({full}); make room",
        100.0 + DISK_PAUSE_S,
    )
    done = ending(0, finished={"status": "done"}, full_disk=full)
    assert settle(done, now=100.0).to is State.SUCCEEDED
    refused = ending(ExitCode.CONFIG, full_disk=full)
    assert settle(refused, now=100.0).cause == "CONFIG"


GONE = {"status": "aborted", "result": {"cause": "SERVER_LOST", "error": "http://a:1 is gone"}}


@pytest.mark.requirement("JB-08")
@pytest.mark.parametrize(("before", "times"), [(0, 1), (1, 2), (3, 8), (10, 60)])
def test_a_job_that_lost_its_server_waits_twice_as_long_each_time(before: int, times: int) -> None:
    """A minute at first, an hour at most; the engine ended by itself, at its last whole step."""
    lost = ending(ExitCode.ABORTED, finished=GONE, servers_lost=before, max_attempts=20)

    verdict = settle(lost, now=100.0)

    assert (verdict.to, verdict.cause, verdict.interrupted) == (State.QUEUED, None, "SERVER_LOST")
    assert verdict.why == "its server was lost: http://a:1 is gone; to resume"
    assert verdict.deferral is not None
    assert verdict.deferral.reason is Reason.SERVER_LOST
    assert verdict.deferral.detail == f"http://a:1 is gone; lost {before + 1} of 20 times"
    assert verdict.deferral.until == 100.0 + min(SERVER_PAUSE_S * times, SERVER_PAUSE_MOST_S)


@pytest.mark.requirement("JB-08")
def test_lost_servers_are_capped_with_the_cause() -> None:
    """As attempts that were lost to a dead supervisor."""
    verdict = settle(ending(ExitCode.ABORTED, finished=GONE, servers_lost=4, max_attempts=5))

    assert (verdict.to, verdict.cause) == (State.FAILED, "SERVER_LOST")
    assert verdict.error == (
        "http://a:1 is gone; 5 attempts in a row lost their server; see that it answers, then try "
        "the job again"
    )


@pytest.mark.parametrize("reason", [AbortReason.CANCEL, AbortReason.REQUEUE, AbortReason.MEMORY])
def test_a_stop_that_was_asked_for_counts_before_a_lost_server(reason: AbortReason) -> None:
    """Whoever asked gets what was asked for."""
    asked = settle(ending(ExitCode.ABORTED, abort=Abort(reason=reason)))

    both = settle(ending(ExitCode.ABORTED, abort=Abort(reason=reason), finished=GONE))

    assert both == asked
