"""The hand-over: a resident model, a real process, goes before a job and comes back after."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, update

from tests.deadline import eventually
from tests.worker.resident import Resident
from worker.attempt.supervisor import RunDirectoryError
from worker.db import decisions
from worker.db.connection import Database
from worker.db.tables import job, resident
from worker.drain import drain
from worker.lane.resident import owed, returns_gb, run_command
from worker.queue.deferral import Reason
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.read import jobs
from worker.schedule.autonomy import switch_off
from worker.settings import WorkerSettings

Tally = Callable[..., int]


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Resident]:
    """A resident that is up; gone when the test is over."""
    home = tmp_path / "resident"
    home.mkdir()
    found = Resident(home)
    found.start()
    yield found
    (home / "hang").unlink(missing_ok=True)
    found.do("stop")
    eventually(lambda: not found.up(), "the resident is gone", 20)


@pytest.fixture
def served(
    db: Database, lives: Resident, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., WorkerSettings]:
    """Settings of a lane on which it lives, for this process and its children."""

    def make(**values: Any) -> WorkerSettings:
        chosen = {
            "resident_stop_cmd": lives.command("stop"),
            "resident_start_cmd": lives.command("start"),
            "resident_check_cmd": lives.command("check"),
            "resident_timeout_s": 10,
            "memory_return_s": 5,
            "meminfo": lives.home / "meminfo",
        } | values
        for name, value in chosen.items():
            monkeypatch.setenv(f"NIGHTLANE_{name.upper()}", str(value))
        db.settings = WorkerSettings()
        return db.settings

    return make


def events(db: Database) -> list[str]:
    return [entry.what for entry in reversed(decisions.newest(db, "cpu", 50))]


@pytest.mark.requirement("LN-06")
@pytest.mark.parametrize(
    ("config", "state"),
    [
        ({}, State.SUCCEEDED),
        ({"at_end": "crash"}, State.FAILED),
        ({"at_end": "kill"}, State.FAILED),
        ({"reads": "/nowhere"}, State.FAILED),
    ],
)
def test_the_resident_is_down_while_a_job_runs_and_up_after_every_ending(
    db: Database,
    tally: Tally,
    lives: Resident,
    served: Callable[..., WorkerSettings],
    config: dict[str, Any],
    state: State,
) -> None:
    """A success, a crash, a kill, a config that does not hold any more."""
    settings = served()
    number = tally(**config)

    drain(settings)

    assert jobs.get_job(db, number).state is state
    assert lives.up()
    assert not owed(db)
    assert [what for what in events(db) if what.startswith("resident")] == [
        "resident-stopped",
        "resident-restored",
    ]


@pytest.mark.requirement("LN-06")
def test_it_is_up_again_when_the_drain_itself_fails(
    db: Database, tally: Tally, lives: Resident, served: Callable[..., WorkerSettings]
) -> None:
    """No room for a run directory ends the drain with an error, behind the stop."""
    settings = served()
    settings.runs_dir.write_text("a file where a directory should be")
    tally()

    with pytest.raises(RunDirectoryError):
        drain(settings)

    assert lives.up()
    assert not owed(db)


@pytest.mark.requirement("LN-06")
def test_it_is_really_down_while_the_job_runs(
    db: Database,
    tally: Tally,
    lives: Resident,
    served: Callable[..., WorkerSettings],
    start_drain: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """And two jobs in a row share one stop and one start."""
    served()
    go = tmp_path / "go"
    first, second = tally(pace=str(go)), tally(steps=1)
    running = start_drain()
    eventually(lambda: jobs.get_job(db, first).result.get("step"), "the job runs")
    down = not lives.up()
    debt = owed(db)

    go.touch()
    running.finish()

    assert down
    assert debt
    assert jobs.get_job(db, second).state is State.SUCCEEDED
    assert events(db).count("resident-stopped") == events(db).count("resident-restored") == 1
    assert lives.up()


@pytest.mark.requirement("LN-06")
def test_a_drain_that_was_killed_leaves_a_debt_that_the_next_one_pays_unarmed(
    db: Database,
    tally: Tally,
    lives: Resident,
    served: Callable[..., WorkerSettings],
    start_drain: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """The row stood before the stop; a scheduled drain without a policy rescues and restores."""
    settings = served()
    number = tally(pace=str(tmp_path / "go"))
    doomed = start_drain()
    eventually(lambda: jobs.get_job(db, number).result.get("step"), "the job runs")
    doomed.signal(signal.SIGKILL)
    doomed.finish()
    assert not lives.up()
    assert owed(db)

    report = drain(settings, scheduled=True)

    assert [settled.job_id for settled in report.rescued] == [number]
    assert report.ran == []
    assert lives.up()
    assert not owed(db)


@pytest.mark.requirement("LN-06", "LN-01")
def test_switching_off_pays_the_debt_too(
    db: Database, lives: Resident, served: Callable[..., WorkerSettings]
) -> None:
    """Whatever an unfinished night left."""
    served()
    lives.do("stop")
    eventually(lambda: not lives.up(), "the resident is down")
    with db.write_tx() as conn:
        conn.execute(insert(resident).values(lane="cpu", owed=True))

    done = switch_off(db, actor="test", now=time.time())

    assert not done.resident_owed
    assert lives.up()


@pytest.mark.requirement("LN-06", "JB-09")
def test_a_stop_command_that_hangs_puts_the_jobs_off(
    db: Database, tally: Tally, lives: Resident, served: Callable[..., WorkerSettings]
) -> None:
    """It is killed at its time limit, once a drain; the model stays up, the reason is shown."""
    settings = served(resident_timeout_s=0.5)
    (lives.home / "hang").touch()
    first, second = tally(), tally(steps=1)

    began = time.monotonic()
    drain(settings)

    assert time.monotonic() - began < 15
    for number in (first, second):
        waiting = jobs.get_job(db, number)
        assert waiting.state is State.QUEUED
        assert waiting.waits_for is not None
        assert waiting.waits_for.reason == Reason.RESIDENT_STUCK
        assert waiting.waits_for.next_eligible_at is not None
    assert events(db).count("resident-stuck") == 1
    assert lives.up()
    assert not owed(db)


@pytest.mark.requirement("LN-06")
def test_a_check_that_does_not_answer_is_no_proof_that_the_model_is_down(
    db: Database, tally: Tally, lives: Resident, served: Callable[..., WorkerSettings]
) -> None:
    """A job that started on that word would find the memory taken; the model is stopped."""
    settings = served(resident_timeout_s=1)
    (lives.home / "mute").touch()
    (lives.home / "hang").touch()
    number = tally()

    drain(settings)

    (lives.home / "mute").unlink()
    waiting = jobs.get_job(db, number).waits_for
    assert waiting is not None
    assert waiting.reason == Reason.RESIDENT_STUCK
    assert lives.up()


@pytest.mark.requirement("LN-06")
def test_a_stop_that_gives_no_memory_back_is_no_stop(
    db: Database, tally: Tally, lives: Resident, served: Callable[..., WorkerSettings]
) -> None:
    """Its server said that it ended, and its engine goes on holding what it held."""
    settings = served(resident_stop_cmd="true", memory_return_s=0.3)
    with db.write_tx() as conn:
        conn.execute(insert(resident).values(lane="cpu", owed=False, returned_gb=10.0))
    number = tally()

    drain(settings)

    waiting = jobs.get_job(db, number).waits_for
    assert waiting is not None
    assert waiting.reason == Reason.RESIDENT_STUCK
    assert "0.0 GB of 10.0 GB came back" in waiting.detail
    assert lives.up()


def test_memory_that_comes_back_late_is_waited_for(
    db: Database, tally: Tally, lives: Resident, served: Callable[..., WorkerSettings]
) -> None:
    """The stop command returns at once; the model takes a second to let go."""
    lives.do("stop")
    eventually(lambda: not lives.up(), "the quick resident is gone")
    lives.do("start", "0.6")
    eventually(lives.up, "the slow resident is up")
    settings = served(resident_start_cmd=lives.command("start", "0.6"))
    with db.write_tx() as conn:
        conn.execute(insert(resident).values(lane="cpu", owed=False, returned_gb=10.0))

    tally(steps=1)

    drain(settings)

    [stopped] = [e for e in decisions.newest(db, "cpu", 50) if e.what == "resident-stopped"]
    assert stopped.numbers["returned_gb"] == 10.0


@pytest.mark.requirement("LN-06")
def test_a_model_that_does_not_start_stays_owed_until_it_does(
    db: Database, tally: Tally, lives: Resident, served: Callable[..., WorkerSettings]
) -> None:
    """The drain ends well, the audit says why, the next drain tries it again."""
    settings = served()
    number = tally(steps=1)
    (lives.home / "broken").touch()

    drain(settings)

    assert jobs.get_job(db, number).state is State.SUCCEEDED
    assert owed(db)
    [failed] = [e for e in decisions.newest(db, "cpu", 50) if e.what == "resident-not-restored"]
    assert "no such model" in failed.detail

    (lives.home / "broken").unlink()
    drain(settings)

    assert lives.up()
    assert not owed(db)


def test_a_model_that_was_down_before_is_not_started(
    db: Database, tally: Tally, lives: Resident, served: Callable[..., WorkerSettings]
) -> None:
    """The lane is handed back as it was found."""
    settings = served()
    lives.do("stop")
    eventually(lambda: not lives.up(), "the resident is down")
    tally(steps=1)

    drain(settings)

    assert not lives.up()
    assert [what for what in events(db) if what.startswith("resident")] == []


@pytest.mark.requirement("LN-04")
def test_the_first_stop_teaches_what_it_gives_back(
    db: Database, tally: Tally, served: Callable[..., WorkerSettings]
) -> None:
    """From then on a job's envelope may count on it before anything is stopped."""
    settings = served()
    before = returns_gb(db)
    tally(steps=1)

    drain(settings)

    assert before is None
    assert returns_gb(db) == pytest.approx(10.0, abs=0.1)


@pytest.mark.requirement("LN-04")
def test_a_job_that_does_not_fit_even_then_is_put_off_and_the_model_comes_back(
    db: Database,
    lives: Resident,
    served: Callable[..., WorkerSettings],
) -> None:
    """Nobody had measured the stop: 20 GB are free after it, and 22 are needed."""
    settings = served()
    number = enqueue(db, "tally", {"steps": 1}, actor="test")
    trace = {"total_gb": 25.0, "headroom_at_spawn_gb": 20.0, "peak_used_gb": 25.0}
    _ran_before(db, number, {"mem_trace": trace})

    drain(settings)

    waiting = jobs.get_job(db, number).waits_for
    assert waiting is not None
    assert waiting.reason == Reason.OOM_ENVELOPE
    assert lives.up()
    assert not owed(db)


@pytest.mark.requirement("LN-12")
def test_the_established_names_of_the_commands_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours count first where both are set."""
    monkeypatch.setenv("FK_RL_RESIDENT_STOP_CMD", "docker stop chat")
    monkeypatch.setenv("FK_RL_RESIDENT_START_CMD", "docker start chat")
    monkeypatch.setenv("FK_RL_VLLM_BIN", "/opt/vllm")
    monkeypatch.setenv("NIGHTLANE_VLLM_BIN", "/srv/vllm")

    found = WorkerSettings()

    assert (found.resident_stop_cmd, found.resident_start_cmd) == (
        "docker stop chat",
        "docker start chat",
    )
    assert found.vllm_bin == "/srv/vllm"


def test_a_command_that_cannot_be_run_says_so(tmp_path: Path) -> None:
    """The operator's typing error, not a traceback."""
    log = tmp_path / "log"

    missing = run_command("/nowhere/stop", limit_s=1, log=log, meanwhile=lambda: None)
    unclosed = run_command("stop 'it", limit_s=1, log=log, meanwhile=lambda: None)
    failing = run_command(
        f"{sys.executable} -c \"print('cannot'); exit(3)\"",
        limit_s=10,
        log=log,
        meanwhile=lambda: None,
    )

    assert (missing.ok, missing.detail) == (
        False,
        "'/nowhere/stop' cannot be run: No such file or directory",
    )
    assert not unclosed.ok
    assert failing.detail.endswith("ended with status 3: cannot")


def _ran_before(db: Database, number: int, result: dict[str, Any]) -> None:
    with db.write_tx() as conn:
        conn.execute(update(job).where(job.c.id == number).values(result=result))
