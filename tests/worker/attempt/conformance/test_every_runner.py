"""What holds wherever an engine runs: in a child on the run directory, or apart on a copy of it."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from engine.contract.events import EventReader
from engine.contract.run_dir import Abort, AbortReason, RunDir, complete_checkpoints
from tests.deadline import eventually
from tests.worker.attempt.conformance.runners import where_it_writes
from tests.worker.queue.verbs import begin, by_hand
from worker.attempt.rescue import rescue
from worker.attempt.runner.base import EngineStartError, Exit, Runner
from worker.db.connection import Database
from worker.db.tables import job
from worker.drain import drain
from worker.lane.lease import hold_lane
from worker.lane.process_id import ProcessIdentity
from worker.lane.strays import marked
from worker.queue import control
from worker.queue.states import State
from worker.read import jobs
from worker.settings import WorkerSettings

Tally = Callable[..., int]
Supervise = Callable[[], subprocess.Popen[bytes]]
SCORES = [(1, 0.1), (2, 0.2), (3, 0.3)]


def run_of(db: Database, number: int) -> RunDir:
    return RunDir(db.settings.runs_dir / str(number))


def engine_of(db: Database, number: int) -> str:
    """The engine of a running job, once it has counted its first step."""
    eventually(lambda: jobs.get_job(db, number).result.get("step"), "the first step", 60)
    with db.read() as conn:
        return str(conn.execute(select(job.c.engine).where(job.c.id == number)).scalar_one())


def process_in(note: Path) -> ProcessIdentity:
    """The process whose number was noted."""
    found = ProcessIdentity.of(int(note.read_text()))
    assert found is not None
    return found


def seen(run: RunDir) -> dict[str, bytes]:
    """What a reader finds: every file under its final name but the worker's own."""
    return {
        str(path.relative_to(run.root)): path.read_bytes()
        for path in run.root.rglob("*")
        if path.is_file() and not path.name.startswith(".") and path.name != "job.json"
    }


def claimed(db: Database) -> RunDir:
    """The run directory of the next job, as its supervisor leaves it before the engine starts."""
    with by_hand(db) as hand:
        taken = hand.claim()
    assert taken is not None
    return begin(db, taken)


@pytest.fixture
def ended(db: Database, tally: Tally, runner: Runner) -> RunDir:
    """An attempt that ran to its end, of which nothing was fetched."""
    tally()
    run = claimed(db)
    engine = runner.start(run, 1)
    eventually(lambda: engine.follow(None, None), "its end", 60)
    return run


def test_a_job_runs_to_its_end_with_its_events_and_files_taken_over(
    settings: WorkerSettings, db: Database, tally: Tally, runner: Runner
) -> None:
    number = tally()

    (settled,) = drain(settings, runner=runner).ran

    assert settled.state is State.SUCCEEDED
    assert jobs.get_job(db, number).result["total"] == 3
    assert jobs.metrics(db, number)["pool/score"] == SCORES
    run = run_of(db, number)
    assert [step for step, _ in complete_checkpoints(run)] == [1, 2, 3]
    assert seen(run) == seen(where_it_writes(runner, run))


def a_touch(db: Database, number: int, drain: subprocess.Popen[bytes], there: RunDir) -> None:
    run_of(db, number).attempt(1).abort.touch()


def a_cancel(db: Database, number: int, drain: subprocess.Popen[bytes], there: RunDir) -> None:
    control.cancel(db, number, actor="test")


def a_signal(db: Database, number: int, drain: subprocess.Popen[bytes], there: RunDir) -> None:
    drain.terminate()


def a_shortage(db: Database, number: int, drain: subprocess.Popen[bytes], there: RunDir) -> None:
    """A watchdog asks where the engine runs."""
    there.attempt(1).request_abort(Abort(reason=AbortReason.MEMORY, headroom_gb=3.5))


@pytest.mark.parametrize(
    ("ask", "state", "why"),
    [
        (a_touch, State.ABORTED, "stopped by an operator"),
        (a_cancel, State.CANCELLED, "cancelled"),
        (a_signal, State.QUEUED, "stopped (sigterm), to resume"),
        (a_shortage, State.QUEUED, "stopped for memory at 3.5 GB, to resume once"),
    ],
)
def test_a_stop_request_reaches_the_engine_and_decides_where_the_job_goes(
    db: Database,
    tally: Tally,
    runner: Runner,
    supervise: Supervise,
    tmp_path: Path,
    ask: Callable[..., None],
    state: State,
    why: str,
) -> None:
    """Whoever asked, on whichever side; the checkpoint is here."""
    number = tally(pace=str(tmp_path / "go"))
    running = supervise()
    engine_of(db, number)
    run = run_of(db, number)
    there = where_it_writes(runner, run)

    ask(db, number, running, there)
    (attempt, *_) = eventually(lambda: jobs.attempts(db, number), "the attempt's end", 60)

    assert attempt.outcome == state
    assert why in [row.why for row in jobs.audit(db, number)]
    assert 1 in dict(complete_checkpoints(run))
    # the next attempt of a queued job may be on its way there just now
    eventually(there.attempt(1).abort.exists, "the request where the engine looks")
    assert run.attempt(1).abort.exists()


@pytest.mark.parametrize(
    ("at_end", "words"),
    [("crash", "(exit 1): ValueError: the tally fell over"), ("kill", "(killed by SIGKILL)")],
)
def test_a_crash_is_told_with_its_status_and_the_end_of_its_log(
    settings: WorkerSettings, db: Database, tally: Tally, runner: Runner, at_end: str, words: str
) -> None:
    number = tally(at_end=at_end)

    drain(settings, runner=runner)

    failed = jobs.get_job(db, number)
    assert (failed.state, failed.cause) == (State.FAILED, "CRASH")
    assert words in str(failed.error)
    assert run_of(db, number).attempt(1).log.exists()


def test_an_engine_that_cannot_start_costs_the_job_nothing(
    settings: WorkerSettings, db: Database, tally: Tally, runner: Runner
) -> None:
    number = tally()
    (run_of(db, number).attempt(1).log).mkdir(parents=True)

    with pytest.raises(EngineStartError, match="the job is queued"):
        drain(settings, runner=runner)

    assert jobs.get_job(db, number).state is State.QUEUED
    assert [settled.state for settled in drain(settings, runner=runner).ran] == [State.SUCCEEDED]


@pytest.mark.parametrize("noted", [True, False])
def test_a_kill_by_another_process_ends_every_process_of_the_attempt(
    db: Database,
    tally: Tally,
    runner: Runner,
    supervise: Supervise,
    tmp_path: Path,
    noted: bool,
) -> None:
    """By the engine's identity or, where its supervisor noted none, without one."""
    child, stray = tmp_path / "child.pid", tmp_path / "stray.pid"
    pace = str(tmp_path / "go")
    number = tally(pace=pace, leaves_child=str(child), sends_away=str(stray))
    running = supervise()
    engine = engine_of(db, number)
    run = run_of(db, number)
    log = where_it_writes(runner, run).attempt(1).log
    processes = {*marked(log), process_in(child), process_in(stray)}
    assert ProcessIdentity.parse(engine) in processes
    running.send_signal(signal.SIGSTOP)

    runner.kill(run, 1, engine if noted else None)

    assert not [process for process in processes if process.alive()]
    assert not set(marked(log))
    running.send_signal(signal.SIGCONT)
    assert running.wait(60) == 0
    assert "killed by SIGKILL" in str(jobs.get_job(db, number).error)


@pytest.mark.requirement("LN-03")
def test_nothing_of_a_dead_supervisors_attempt_is_left_when_the_lane_changes_hands(
    settings: WorkerSettings,
    db: Database,
    tally: Tally,
    runner: Runner,
    supervise: Supervise,
    tmp_path: Path,
) -> None:
    """The attempt is rescued; the next one resumes it, and nothing is counted twice."""
    go, stray = tmp_path / "go", tmp_path / "stray.pid"
    number = tally(pace=str(go), sends_away=str(stray))
    doomed = supervise()
    engine = engine_of(db, number)
    left = [ProcessIdentity.parse(engine), process_in(stray)]
    doomed.kill()
    doomed.wait()
    assert left[1].alive()

    with hold_lane(db, settings, end=runner.kill) as lease:
        assert not [process for process in left if process.alive()]
        rescued = rescue(lease, runner)
    go.touch()
    report = drain(settings, runner=runner)

    assert [settled.state for settled in rescued] == [State.QUEUED]
    assert [(one.attempt, one.state) for one in report.ran] == [(2, State.SUCCEEDED)]
    assert jobs.metrics(db, number)["pool/score"] == SCORES


def test_a_rescue_ends_an_engine_that_nobody_noted_before_it_settles_the_job(
    settings: WorkerSettings, db: Database, tally: Tally, runner: Runner, tmp_path: Path
) -> None:
    """Also where the lane was given back in order, so that no takeover looked."""
    tally(pace=str(tmp_path / "go"))
    run = claimed(db)
    engine = runner.start(run, 1)
    eventually(where_it_writes(runner, run).events.exists, "the engine's first event", 60)

    with hold_lane(db, settings, end=runner.kill) as lease:
        (settled,) = rescue(lease, runner)

    assert settled.state is State.QUEUED
    assert not ProcessIdentity.parse(engine.identity).alive()
    assert engine.follow(None, None) == Exit(-signal.SIGKILL)


def test_a_rescue_brings_what_the_supervisor_had_no_time_to_fetch(
    settings: WorkerSettings,
    db: Database,
    tally: Tally,
    runner: Runner,
    supervise: Supervise,
    tmp_path: Path,
) -> None:
    """The engine got to its end while its supervisor slept, which then died."""
    go = tmp_path / "go"
    number = tally(pace=str(go))
    doomed = supervise()
    engine = ProcessIdentity.parse(engine_of(db, number))
    doomed.send_signal(signal.SIGSTOP)
    go.touch()
    eventually(lambda: not engine.alive(), "the engine's end", 60)
    doomed.kill()
    doomed.wait()

    with hold_lane(db, settings, end=runner.kill) as lease:
        (settled,) = rescue(lease, runner)

    assert settled.state is State.SUCCEEDED
    assert jobs.metrics(db, number)["pool/score"] == SCORES
    run = run_of(db, number)
    assert seen(run) == seen(where_it_writes(runner, run))


def test_to_fetch_again_changes_nothing(runner: Runner, ended: RunDir) -> None:
    runner.fetch(ended, 1)
    files = seen(ended)
    written = {name: (ended.root / name).stat().st_mtime_ns for name in files}

    runner.fetch(ended, 1)

    assert files == seen(where_it_writes(runner, ended))
    assert seen(ended) == files
    assert {name: (ended.root / name).stat().st_mtime_ns for name in files} == written


FILE_OPERATIONS = {
    "open",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.symlink",
    "os.utime",
}


def a_kill(n: int) -> None:
    """This process dies before its n-th file operation."""
    left = n

    def count(event: str, _arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in FILE_OPERATIONS:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def a_full_disk(n: int) -> None:
    """No file of this process has room for more than 2ⁿ bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**n, resource.RLIM_INFINITY))


def fetched_in_spite_of(interruption: Callable[[], None], runner: Runner, run: RunDir) -> bool:
    """Fetch in another process; whether it got through."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    failed = True
    try:
        interruption()
        runner.fetch(run, 1)
        failed = False
    finally:
        os._exit(failed)


def marked_complete(run: RunDir) -> dict[str, list[str]]:
    """The files of each checkpoint that says it has them all."""
    folders = [str(folder.relative_to(run.root)) for _, folder in complete_checkpoints(run)]
    return {one: sorted(name for name in seen(run) if name.startswith(one)) for one in folders}


@pytest.mark.parametrize("interruption", [a_kill, a_full_disk])
def test_nobody_sees_half_a_file_however_a_fetch_ends(
    runner: Runner, ended: RunDir, tmp_path: Path, interruption: Callable[[int], None]
) -> None:
    """Interrupted at each point in turn, and then begun again."""
    before = tmp_path / "before"
    shutil.copytree(ended.root, before)
    there = where_it_writes(runner, ended)
    (there.checkpoint(3) / "weights").write_bytes(bytes(50_000))  # the events are not the largest
    whole, complete = seen(there), marked_complete(there)
    n = 1
    while not fetched_in_spite_of(partial(interruption, n), runner, ended):
        for name, data in seen(ended).items():
            grows = name == "events.jsonl"
            assert whole[name].startswith(data) if grows else whole[name] == data, name
        assert {**complete, **marked_complete(ended)} == complete
        runner.fetch(ended, 1)
        assert seen(ended) == whole
        shutil.rmtree(ended.root)
        shutil.copytree(before, ended.root)
        n += 1

    assert seen(ended) == whole


def test_an_event_is_read_once_it_is_whole(runner: Runner, ended: RunDir) -> None:
    """Half a line is fetched later, or left out."""
    runner.fetch(ended, 1)
    reader = EventReader(ended.events)
    last = [event for event, _ in reader.read()][-1]
    line = b'{"seq":%d,"attempt":1,"t":1.0,"type":"note"}\n' % (last["seq"] + 1)

    new = []
    for half in (line[:20], line[20:]):
        with where_it_writes(runner, ended).events.open("ab") as events:
            events.write(half)
        runner.fetch(ended, 1)
        new.append([event["type"] for event, _ in reader.read()])

    assert new == [[], ["note"]]


def test_what_the_engine_took_away_is_gone(runner: Runner, ended: RunDir) -> None:
    """An old checkpoint, the report of weights that are no more."""
    runner.fetch(ended, 1)
    folder = where_it_writes(runner, ended).checkpoint(1)
    for file in sorted(folder.iterdir()):
        file.unlink()
    folder.rmdir()

    runner.fetch(ended, 1)

    assert not ended.checkpoint(1).exists()
    assert ended.checkpoint(2).exists()


def test_a_stop_request_outlives_a_fetch(runner: Runner, ended: RunDir) -> None:
    """The first reason wins, on whichever side it was written."""
    ended.attempt(1).request_abort(Abort(reason=AbortReason.CANCEL))
    where_it_writes(runner, ended).attempt(1).request_abort(Abort(reason=AbortReason.MEMORY))

    runner.fetch(ended, 1)

    asked = ended.attempt(1).read_abort()
    assert asked is not None
    assert asked.reason is AbortReason.CANCEL
