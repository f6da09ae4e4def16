"""Silence: learnt phase by phase, said, and ended so that the run goes on from its checkpoint."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tests.deadline import eventually
from worker.attempt.silence import FACTOR, PATIENCE, Silence
from worker.clock.night import night_at
from worker.db.connection import Database
from worker.db.tables import attempt, job
from worker.db.zone import lane_zone
from worker.drain import drain
from worker.lane.process_id import ProcessIdentity
from worker.queue.states import State
from worker.read import jobs
from worker.read.diagnosis import Level, diagnose
from worker.report.going import going_on
from worker.settings import WorkerSettings

pytestmark = pytest.mark.requirement("LN-15")
Tally = Callable[..., int]


class Run:
    """A run of events, by a clock of the test's own that is looked at every second."""

    def __init__(self) -> None:
        self.now = 0.0
        self.silence = Silence(600.0, 60.0, clock=lambda: self.now)

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.now += 1
            self.silence.look()

    def event(self, **fields: Any) -> None:
        self.silence.heard({"type": "progress", **fields})

    def limit(self) -> float:
        """Seconds from now on, without an event, until it is silent."""
        before, start = self.silence.found(), self.now
        assert before is None
        while self.silence.found() is None:
            self.wait(1)
        return self.now - start


def test_before_the_first_event_the_limit_is_ten_minutes() -> None:
    """An engine that hangs before it says anything is noticed too."""
    assert Run().limit() == 600


def test_a_phase_of_which_nothing_is_learnt_has_ten_minutes() -> None:
    """Two quick events at its beginning tell nothing of how long a large model takes to load."""
    run = Run()
    run.event(phase="lane-bringup")
    run.event(phase="lane-bringup", step=0)

    assert run.limit() == 600


def test_the_longest_stretch_of_a_phase_is_learnt_five_times_over() -> None:
    """Also in a phase that is never left, once two of its steps were seen."""
    run = Run()
    for step in range(4):
        run.event(phase="training", step=step)
        run.wait(40)

    assert run.silence.found() is None
    assert run.limit() + 40 == FACTOR * 40


def test_a_learnt_limit_is_a_minute_at_least() -> None:
    """Steps of a second are no reason to call half a minute a silence."""
    run = Run()
    for step in range(4):
        run.event(phase="training", step=step)
        run.wait(1)
    run.event(step=4)

    assert run.limit() == 60


def test_each_phase_has_a_limit_of_its_own() -> None:
    """A gate that takes minutes does not stretch the limit of a step, nor the other way round."""
    run = Run()
    for step in (1, 2):
        run.event(phase="heldout-gate")
        run.wait(100)
        run.event(phase="training", step=step)
        run.wait(1)

    assert run.limit() + 1 == 60
    run.event(phase="heldout-gate")
    assert run.limit() == FACTOR * 100


def test_how_long_a_checkpoint_took_counts_in_every_phase() -> None:
    """The first one of a phase may come when its quick steps are long known."""
    run = Run()
    run.silence.learn([{"type": "checkpoint", "step": 0, "seconds": 90.0}])
    for step in range(4):
        run.event(phase="training", step=step)

    assert run.limit() == FACTOR * 90


def test_a_silent_run_is_ended_after_three_times_its_limit() -> None:
    """Said first, ended later."""
    run = Run()
    run.wait(600)
    said = run.silence.found()
    run.wait((PATIENCE - 1) * 600)
    ended = run.silence.found()

    assert said is not None
    assert not said.overdue
    assert ended is not None
    assert ended.overdue


def test_a_suspended_machine_is_not_silent() -> None:
    """What the supervisor slept through counts for nothing, by whatever clock."""
    run = Run()
    run.event(phase="training", step=1)
    run.now += 8 * 3600
    run.silence.look()

    assert run.silence.found() is None


def test_a_clock_that_goes_backwards_is_no_silence() -> None:
    """Whoever hands such a clock in."""
    run = Run()
    run.now -= 3600
    run.silence.look()

    assert run.limit() == 600


def test_a_limit_of_zero_means_never() -> None:
    """For a kind that writes no events at all."""
    now = [0.0]
    silence = Silence(0.0, 0.0, clock=lambda: now[0])
    for _ in range(10_000):
        now[0] += 10
        silence.look()

    assert silence.found() is None


# --- in a drain ---


@pytest.fixture
def hasty(settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch) -> WorkerSettings:
    """Limits that a test can wait for."""
    monkeypatch.setenv("NIGHTLANE_SILENCE_S", "1.5")
    monkeypatch.setenv("NIGHTLANE_SILENCE_LEAST_S", "1.5")
    monkeypatch.setenv("NIGHTLANE_ABORT_GRACE_S", "0.5")
    return WorkerSettings()


@contextmanager
def beside(act: Callable[[], None]) -> Iterator[None]:
    """`act` in a thread, while the block drains in the main one."""
    raised: list[BaseException] = []

    def guarded() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - told in the test's own thread
            raised.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    yield
    thread.join()
    if raised:
        raise raised[0]


def engine_of(db: Database, number: int) -> ProcessIdentity:
    eventually(lambda: jobs.get_job(db, number).result.get("step"), "the first step")
    with db.read() as conn:
        found = conn.execute(select(job.c.engine).where(job.c.id == number)).scalar_one()
    return ProcessIdentity.parse(found)


def test_a_stopped_engine_is_said_ended_and_its_run_goes_on(
    hasty: WorkerSettings, db: Database, tally: Tally, tmp_path: Path
) -> None:
    """`kill -STOP`: the sentinel is not heard, so the group is killed; the second attempt ends."""
    go = tmp_path / "go"
    number, behind = tally(pace=str(go)), tally()
    seen: dict[str, Any] = {}

    def stop_it() -> None:
        os.kill(engine_of(db, number).pid, signal.SIGSTOP)
        eventually(lambda: jobs.get_job(db, number).result.get("silent_since"), "the silence")
        now = jobs.get_job(db, number).heartbeat_at or 0.0
        seen["doctor"] = [f for f in diagnose(hasty) if f.level is Level.RISK]
        seen["going"] = going_on(db, night_at(now, lane_zone(db)), now)
        go.touch()

    with beside(stop_it):
        ran = drain(hasty).ran

    assert [(one.job_id, one.attempt, one.state) for one in ran] == [
        (number, 1, State.QUEUED),
        (number, 2, State.SUCCEEDED),
        (behind, 1, State.SUCCEEDED),
    ]
    said = [row.why for row in jobs.audit(db, number)]
    assert any(why.startswith("SILENT: no event for") for why in said)
    assert "stopped (silent), to resume; killed, its checkpoint did not come in time" in said
    assert any(f"SILENT: job {number} has written no event" in f.detail for f in seen["doctor"])
    assert seen["going"][0].silent_since
    assert "silent_since" not in jobs.get_job(db, number).result
    with db.read() as conn:
        rows = select(attempt.c.outcome, attempt.c.cause).where(attempt.c.job_id == number)
        first = conn.execute(rows.order_by(attempt.c.n)).first()
    assert first is not None
    assert tuple(first) == (State.QUEUED, "SILENT")


def test_an_engine_that_hears_the_request_ends_at_its_checkpoint(
    hasty: WorkerSettings, db: Database, tally: Tally, tmp_path: Path
) -> None:
    """Silent and not deaf: nobody has to kill it."""
    go = tmp_path / "go"
    number = tally(pace=str(go))

    def let_it_go_on() -> None:
        eventually(lambda: jobs.get_job(db, number).attempt == 2, "the second attempt")
        go.touch()

    with beside(let_it_go_on):
        ran = drain(hasty).ran

    assert [one.state for one in ran] == [State.QUEUED, State.SUCCEEDED]
    assert "stopped (silent), to resume" in [row.why for row in jobs.audit(db, number)]


def test_an_engine_that_writes_again_is_not_silent_any_more(
    hasty: WorkerSettings, db: Database, tally: Tally, tmp_path: Path
) -> None:
    """Said, taken back, and it ends in its first attempt."""
    go = tmp_path / "go"
    number = tally(pace=str(go))

    def go_on_late() -> None:
        eventually(lambda: jobs.get_job(db, number).result.get("silent_since"), "the silence")
        go.touch()

    with beside(go_on_late):
        (ran,) = drain(hasty).ran

    assert (ran.attempt, ran.state) == (1, State.SUCCEEDED)
    assert "silent_since" not in jobs.get_job(db, number).result
