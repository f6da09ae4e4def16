"""The drain from end to end: real SQLite file, real engine and drain processes, real signals."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from engine.contract.registry import validate
from engine.contract.run_dir import RunDir
from tests.deadline import eventually
from worker.attempt import ingest
from worker.attempt.runner.base import EngineStartError
from worker.db.connection import Database
from worker.db.tables import job, lane
from worker.drain import drain
from worker.lane.lease import LaneHeldError
from worker.lane.process_id import ProcessIdentity
from worker.memory.guard import WatchdogError
from worker.queue.states import State
from worker.read import jobs
from worker.read.lane import lane_status
from worker.settings import WorkerSettings

Tally = Callable[..., int]


def engine_of(db: Database, job_id: int) -> ProcessIdentity:
    """The engine of a running job, once it has counted its first step."""
    eventually(lambda: jobs.get_job(db, job_id).result.get("step"), "the first step", 60)
    with db.read() as conn:
        text = conn.execute(select(job.c.engine).where(job.c.id == job_id)).scalar_one()
    return ProcessIdentity.parse(text)


def has_reached(db: Database, job_id: int, attempt: int) -> bool:
    """A paced tally counts one step in each attempt."""
    row = jobs.get_job(db, job_id)
    return row.attempt == attempt and row.result.get("step") == attempt


def gone(process: ProcessIdentity) -> None:
    eventually(lambda: not process.alive(), f"process {process.pid} to be gone", 10)


@pytest.mark.requirement("JB-01")
def test_a_drain_runs_every_queued_job_in_order_and_ends(
    settings: WorkerSettings, db: Database, tally: Tally
) -> None:
    """A kind that is one file runs; nothing eligible is left, so a plain drain ends by itself."""
    first, second = tally(), tally(steps=2)

    report = drain(settings)

    assert [(settled.job_id, settled.state) for settled in report.ran] == [
        (first, State.SUCCEEDED),
        (second, State.SUCCEEDED),
    ]
    assert jobs.get_job(db, first).result["total"] == 3
    assert not lane_status(db, "cpu").held


def test_a_run_whose_events_cannot_be_taken_over_fails_and_the_next_one_runs(
    settings: WorkerSettings, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever one engine wrote, the drain goes on behind it."""
    first, second = tally(), tally(steps=2)
    fold = ingest.fold

    def breaks(result: Any, event: Any) -> Any:
        if event["type"] == "progress" and event.get("max_steps") == 3:
            raise ZeroDivisionError("nobody thought of this")
        return fold(result, event)

    monkeypatch.setattr(ingest, "fold", breaks)

    ran = {settled.job_id: settled for settled in drain(settings).ran}

    assert (ran[first].state, ran[first].cause) == (State.FAILED, "NO_RESULT")
    assert "(ZeroDivisionError: nobody thought of this)" in str(ran[first].error)
    assert ran[second].state is State.SUCCEEDED


def test_run_directories_may_live_on_another_disk(
    settings: WorkerSettings, tally: Tally, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FK_RL_WORK_DIR takes rollouts and checkpoints; the database stays where it is."""
    monkeypatch.setenv("FK_RL_WORK_DIR", str(tmp_path / "large"))
    number = tally()

    (settled,) = drain(WorkerSettings()).ran

    assert settled.state is State.SUCCEEDED
    assert RunDir(tmp_path / "large" / str(number)).attempt(1).log.exists()
    assert not settings.runs_dir.exists()


@pytest.mark.requirement("JB-06")
def test_each_transition_of_a_run_stands_in_the_audit(
    settings: WorkerSettings, db: Database, tally: Tally
) -> None:
    """Who, when and why, from enqueue to the end."""
    number = tally()

    drain(settings)

    rows = jobs.audit(db, number)
    assert [(row.from_state, row.to_state) for row in rows] == [
        (None, State.QUEUED),
        (State.QUEUED, State.RUNNING),
        (State.RUNNING, State.SUCCEEDED),
    ]
    assert [row.actor for row in rows] == ["test", f"drain:{os.getpid()}", f"drain:{os.getpid()}"]
    assert all(row.why for row in rows)
    assert [row.at for row in rows] == sorted(row.at for row in rows)


def test_an_attempt_keeps_its_evidence(
    settings: WorkerSettings, db: Database, tally: Tally, tmp_path: Path
) -> None:
    """job.json holds every default and names each input by path, size and hash."""
    source = tmp_path / "numbers.txt"
    source.write_text("abc")
    number = tally(reads=str(source))

    drain(settings)

    attempt = RunDir(jobs.get_job(db, number).run_dir).attempt(1)
    told = attempt.read_job()
    assert told.config["steps"] == 3
    assert told.fence > 0
    assert [(entry.path, entry.size) for entry in told.inputs] == [(str(source), 3)]
    assert told.inputs[0].sha256.startswith("ba7816bf")
    assert attempt.log.exists()


@pytest.mark.parametrize(
    ("at_end", "cause", "words"),
    [
        ("crash", "CRASH", "ValueError: the tally fell over"),
        ("kill", "CRASH", "killed by SIGKILL"),
        ("decline", "NO_HEADROOM", "it can do the task already"),
        ("silent", "NO_RESULT", "without a result"),
    ],
)
def test_a_run_that_did_not_work_out_fails_with_its_cause(
    settings: WorkerSettings, db: Database, tally: Tally, at_end: str, cause: str, words: str
) -> None:
    """A word for machines, a sentence for people; the next job is not held up."""
    number, after = tally(at_end=at_end), tally(steps=1)

    drain(settings)

    failed = jobs.get_job(db, number)
    assert (failed.state, failed.cause) == (State.FAILED, cause)
    assert failed.error is not None
    assert words in failed.error
    assert "\n" not in failed.error
    assert jobs.get_job(db, after).state is State.SUCCEEDED


def test_the_heart_beats_on_while_a_corpus_is_judged(
    settings: WorkerSettings, db: Database, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read it can take longer than a lease lasts."""

    def beat() -> float:
        with db.read() as conn:
            return float(conn.execute(select(lane.c.beat)).scalar_one())

    def slow(kind: str, config: Any) -> Any:
        before = beat()
        eventually(lambda: beat() > before, "a heartbeat")
        return validate(kind, config)

    tally(steps=1)
    monkeypatch.setattr("worker.attempt.supervisor.validate", slow)

    (settled,) = drain(settings).ran

    assert settled.state is State.SUCCEEDED


def test_an_input_that_vanished_fails_the_job_before_anything_is_started(
    settings: WorkerSettings, db: Database, tally: Tally, tmp_path: Path
) -> None:
    """The error names field, value and remedy."""
    number = tally(reads=str(tmp_path / "nowhere"))

    drain(settings)

    failed = jobs.get_job(db, number)
    assert (failed.state, failed.cause) == (State.FAILED, "CONFIG")
    assert failed.error is not None
    assert failed.error.startswith("inputs: cannot be read: No such file or directory (got '")
    assert not RunDir(failed.run_dir).attempt(1).log.exists()


def no_log(runs: Path, patch: pytest.MonkeyPatch) -> None:
    (runs / "1" / "attempts" / "001" / "engine.log").mkdir(parents=True)


def no_python(runs: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys, "executable", str(runs / "python"))


def no_watchdog(runs: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("worker.memory.guard.SENTRY", ("-c", "no sentry"))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (no_log, "the engine did not start: .*Is a directory.*engine.log"),
        (no_python, "the memory watchdog did not start: .*No such file.*python"),
        (no_watchdog, "the memory watchdog ended at its start"),
    ],
)
def test_a_machine_that_starts_no_engine_costs_the_job_nothing(
    settings: WorkerSettings,
    db: Database,
    tally: Tally,
    spoil: Callable[[Path, pytest.MonkeyPatch], None],
    why: str,
) -> None:
    """The drain ends with a loud error; the job is queued and runs once the machine is well."""
    number = tally()
    loud = pytest.raises((EngineStartError, WatchdogError), match=f"{why}.*; the job is queued")
    with pytest.MonkeyPatch.context() as patch, loud:
        spoil(settings.runs_dir, patch)
        drain(settings)

    assert jobs.get_job(db, number).state is State.QUEUED
    report = drain(settings)
    assert report.rescued == []
    assert [settled.state for settled in report.ran] == [State.SUCCEEDED]


@pytest.mark.requirement("LN-08")
def test_an_operators_touch_aborts_the_run(
    settings: WorkerSettings,
    db: Database,
    tally: Tally,
    start_drain: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """An empty `abort` is a complete request; the checkpoint stays, the job is aborted."""
    number = tally(pace=str(tmp_path / "go"))
    running = start_drain()
    engine = engine_of(db, number)
    run = RunDir(jobs.get_job(db, number).run_dir)

    run.attempt(1).abort.touch()
    running.finish()

    ended = jobs.get_job(db, number)
    assert (ended.state, ended.cause) == (State.ABORTED, "OPERATOR")
    assert (run.checkpoint(1) / "complete.json").exists()
    assert ended.result["aborted"] is True
    gone(engine)


def test_a_stop_request_of_an_earlier_life_is_filed_away(
    settings: WorkerSettings, db: Database, tally: Tally
) -> None:
    """A sentinel that stands before the attempt begins asks nobody; the evidence stays."""
    number = tally()
    attempt = RunDir(jobs.get_job(db, number).run_dir).attempt(1)
    attempt.root.mkdir(parents=True)
    attempt.abort.touch()

    drain(settings)

    assert jobs.get_job(db, number).state is State.SUCCEEDED
    assert not attempt.abort.exists()
    assert (attempt.root / "abort.stale-1").exists()


@pytest.mark.requirement("LN-03", "JB-08")
def test_a_drain_killed_outright_leaves_a_job_that_the_next_one_resumes(
    settings: WorkerSettings,
    db: Database,
    tally: Tally,
    start_drain: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """The engine dies with its supervisor; the next drain need not wait for the lease."""
    go = tmp_path / "go"
    number = tally(pace=str(go), steps=4)
    doomed = start_drain()
    engine = engine_of(db, number)

    doomed.signal(signal.SIGKILL)
    doomed.finish()
    gone(engine)
    go.touch()
    report = drain(settings)

    assert [(settled.job_id, settled.state) for settled in report.rescued] == [
        (number, State.QUEUED)
    ]
    ended = jobs.get_job(db, number)
    assert (ended.state, ended.attempt) == (State.SUCCEEDED, 2)
    assert [step for step, _ in jobs.metrics(db, number)["pool/score"]] == [1, 2, 3, 4]
    assert "to resume from its last checkpoint" in jobs.audit(db, number)[2].why


@pytest.mark.requirement("LN-03", "JB-04")
def test_a_stopped_drain_is_killed_with_its_engine_before_its_lane_is_taken(
    settings: WorkerSettings,
    db: Database,
    tally: Tally,
    start_drain: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Its lease ran out while it slept; waking up late it finds itself dead and writes nothing."""
    go = tmp_path / "go"
    number = tally(pace=str(go))
    sleeper = start_drain(NIGHTLANE_LEASE_S="1")
    engine = engine_of(db, number)
    sleeper.signal(signal.SIGSTOP)
    eventually(lambda: (lane_status(db, "cpu").heartbeat_age_s or 0) > 1.2, "the lease's end")

    late = start_drain(NIGHTLANE_LEASE_S="1")
    eventually(lambda: jobs.get_job(db, number).attempt == 2, "the takeover")
    assert not engine.alive()
    go.touch()
    code, out, err = late.finish()
    sleeper.signal(signal.SIGCONT)

    assert (code, out, err) == (0, f"[({number}, 'succeeded')]\n", "")
    assert sleeper.finish()[0] == -signal.SIGKILL
    by_sleeper = [row for row in jobs.audit(db, number) if str(sleeper.child.pid) in row.actor]
    assert [row.to_state for row in by_sleeper] == [State.RUNNING]


@pytest.mark.requirement("JB-04")
def test_a_supervisor_with_a_stale_fence_kills_its_engine_writes_nothing_and_stops(
    settings: WorkerSettings,
    db: Database,
    tally: Tally,
    start_drain: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Somebody else holds the lane now: whatever the late supervisor tries changes 0 rows."""
    number = tally(pace=str(tmp_path / "go"))
    late = start_drain()
    engine = engine_of(db, number)

    with db.write_tx() as conn:
        conn.execute(update(lane).values(fence=99))
        conn.execute(update(job).values(fence=99, result={"mine": True}))
    code, _, err = late.finish()

    assert code == 1
    assert err.startswith("LeaseLostError: ")
    assert "Traceback" not in err
    gone(engine)
    row = jobs.get_job(db, number)
    assert (row.state, row.result) == (State.RUNNING, {"mine": True})
    assert len(jobs.audit(db, number)) == 2


@pytest.mark.requirement("LN-03")
def test_a_second_drain_is_refused_at_once_and_told_who_holds_the_lane(
    settings: WorkerSettings,
    db: Database,
    tally: Tally,
    start_drain: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Refused, not queued up: the message names job, kind and the way out."""
    number = tally(pace=str(tmp_path / "go"))
    start_drain()
    engine_of(db, number)

    with pytest.raises(LaneHeldError) as refusal:
        drain(settings)

    sentinel = settings.runs_dir / str(number) / "attempts/001/abort"
    assert str(refusal.value) == (
        f'lane "cpu" is held by job {number} (tally, 0 min); wait, or stop it: touch {sentinel}'
    )
    assert jobs.get_job(db, number).state is State.RUNNING


@pytest.mark.requirement("LN-03")
def test_two_data_directories_do_not_share_a_lane(
    settings: WorkerSettings, db: Database, start_drain: Callable[..., Any], tmp_path: Path
) -> None:
    """The machine-wide lock stands even though each database sees a free lane."""
    start_drain("--wait")
    eventually(lambda: lane_status(db, "cpu").held, "the first drain's lane")

    other = settings.model_copy(update={"data_dir": tmp_path / "other"})
    with pytest.raises(LaneHeldError, match=f"a drain of {settings.data_dir} "):
        drain(other)


@pytest.mark.parametrize(("how", "times"), [(signal.SIGTERM, 1), (signal.SIGINT, 2)])
def test_a_drain_asked_to_end_puts_its_job_back_and_the_next_one_resumes_it(
    settings: WorkerSettings,
    db: Database,
    tally: Tally,
    start_drain: Callable[..., Any],
    tmp_path: Path,
    how: signal.Signals,
    times: int,
) -> None:
    """SIGTERM and Ctrl-C lose nothing, asked twice neither; no process is left."""
    go = tmp_path / "go"
    number = tally(pace=str(go))
    asked = start_drain()
    engine = engine_of(db, number)

    for _ in range(times):
        asked.signal(how)
    code, out, err = asked.finish()

    assert (code, out, err) == (0, f"[({number}, 'queued')]\n", "")
    assert not engine.alive()
    assert not lane_status(db, "cpu").held
    go.touch()
    drain(settings)
    ended = jobs.get_job(db, number)
    assert (ended.state, ended.attempt, ended.result["step"]) == (State.SUCCEEDED, 2, 3)


def test_an_engine_that_ignores_a_stop_request_is_killed_after_its_grace(
    settings: WorkerSettings,
    db: Database,
    tally: Tally,
    start_drain: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """The request decides where the job goes, not the way its engine ended."""
    number = tally(pace=str(tmp_path / "go"), deaf=True)
    asked = start_drain(NIGHTLANE_ABORT_GRACE_S="0.3")
    engine = engine_of(db, number)

    asked.signal(signal.SIGTERM)
    asked.finish()

    assert not engine.alive()
    assert jobs.get_job(db, number).state is State.QUEUED
    assert "did not come in time" in jobs.audit(db, number)[-1].why


def test_what_an_engine_leaves_behind_dies_with_the_attempt(
    settings: WorkerSettings, db: Database, tally: Tally, tmp_path: Path
) -> None:
    """Its whole process group ends, so nothing holds memory or the accelerator afterwards."""
    note = tmp_path / "child.pid"
    tally(leaves_child=str(note))

    drain(settings)

    left = ProcessIdentity.of(int(note.read_text()))
    assert left is None or not left.alive()


def test_a_waiting_drain_takes_a_job_that_comes_later(
    settings: WorkerSettings, db: Database, tally: Tally, start_drain: Callable[..., Any]
) -> None:
    """`--wait` keeps polling; SIGTERM ends it."""
    waiting = start_drain("--wait")
    eventually(lambda: lane_status(db, "cpu").held, "the drain's lane")

    number = tally()
    eventually(lambda: jobs.get_job(db, number).state is State.SUCCEEDED, "the late job")
    waiting.signal(signal.SIGTERM)

    assert waiting.finish()[:2] == (0, f"[({number}, 'succeeded')]\n")


def test_a_drain_ends_between_jobs_when_its_condition_holds(
    settings: WorkerSettings, db: Database, tally: Tally
) -> None:
    """`until` is asked between jobs, never inside one."""
    first, second = tally(), tally()

    drain(settings, wait=True, until=lambda: jobs.get_job(db, first).state.final)

    assert jobs.get_job(db, second).state is State.QUEUED


@pytest.mark.parametrize(
    ("reason", "state"), [("budget", State.QUEUED), ("cancel", State.CANCELLED)]
)
def test_the_reason_in_the_sentinel_decides_where_the_job_goes(
    settings: WorkerSettings,
    db: Database,
    tally: Tally,
    start_drain: Callable[..., Any],
    tmp_path: Path,
    reason: str,
    state: State,
) -> None:
    """A job put back for its budget is not run again by the same drain."""
    number, after = tally(pace=str(tmp_path / "go")), tally(steps=1)
    running = start_drain()
    engine_of(db, number)

    abort = RunDir(jobs.get_job(db, number).run_dir).attempt(1).abort
    abort.write_text(f'{{"reason": "{reason}"}}')
    code, out, _ = running.finish()

    assert (code, out) == (0, f"[({number}, '{state}'), ({after}, 'succeeded')]\n")


def test_a_job_that_memory_stopped_runs_once_more_and_then_stays_aborted(
    settings: WorkerSettings,
    db: Database,
    tally: Tally,
    start_drain: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """The second attempt begins without the first one's sentinel."""
    number = tally(pace=str(tmp_path / "go"), steps=9)
    running = start_drain()

    for attempt in (1, 2):
        eventually(partial(has_reached, db, number, attempt), f"attempt {attempt}", 60)
        abort = RunDir(jobs.get_job(db, number).run_dir).attempt(attempt).abort
        abort.write_text('{"reason": "memory", "headroom_gb": 3.5}')
    running.finish()

    ended = jobs.get_job(db, number)
    assert (ended.state, ended.cause, ended.attempt) == (State.ABORTED, "MEMORY", 2)
    assert ended.error is not None
    assert "3.5 GB" in ended.error
