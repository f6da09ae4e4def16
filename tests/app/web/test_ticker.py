"""Drains started from the web process: detached, one at a time, only when there is a reason."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest
from fastapi import FastAPI
from sqlalchemy import update
from starlette.testclient import TestClient

import app.web.ticker
from app.main import create_app
from app.web.detached import spawn_cockpit
from app.web.settings import AppSettings
from app.web.ticker import MISFIRE_GRACE_S, TICK, Drains, Ticker
from engine.contract import kinds, registry
from tests.app.cli.test_cli import Served
from tests.app.conftest import ORIGIN
from tests.app.night import night, queue
from tests.deadline import eventually
from tests.door import bearer
from tests.worker.holding import hold_lane
from worker.db.connection import Database
from worker.db.tables import lane
from worker.queue.evaluations import queue_evaluations
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.read import jobs
from worker.read.lane import lane_status
from worker.schedule.looks import looks_of
from worker.schedule.policy import Policy, arm, disarm
from worker.settings import WorkerSettings

PATIENT = '''
"""Runs until it is told to stop."""

import os
import time

from pydantic import BaseModel

from engine.contract.kind import Kind
from engine.contract.run_dir import ExitCode


class Config(BaseModel):
    ends: bool = False


def run(attempt):
    attempt.events.write("started", resumed_from=None)
    attempt.events.write("progress", phase="training", step=1, max_steps=2)
    while not attempt.config.ends:
        if attempt.should_abort():
            attempt.events.write("finished", status="aborted", result={})
            attempt.events.close()
            os._exit(ExitCode.ABORTED)
        time.sleep(0.02)
    return {"kind": "patient"}


KIND = Kind(name="patient", summary="Waits.", config=Config, entry=f"{__name__}:run")
'''


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A kind whose jobs run for as long as a test wants."""
    folder = tmp_path / "kinds"
    folder.mkdir()
    (folder / "patient.py").write_text(PATIENT)
    monkeypatch.setenv("NIGHTLANE_KINDS_PATH", str(folder))
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(folder)])
    registry.kinds.cache_clear()
    yield
    registry.kinds.cache_clear()


def armed(db: Database, *, interval_min: float) -> None:
    arm(db, Policy(interval_min=interval_min), actor="test", now=time.time())


def ended(process: psutil.Process) -> bool:
    """Also one that only waits for its parent to ask for its status."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def state(db: Database, job_id: int) -> State:
    return jobs.get_job(db, job_id).state


@pytest.mark.usefixtures("patient")
def test_run_now_runs_the_queue_in_a_session_of_its_own(
    client: TestClient, application: FastAPI, db: Database
) -> None:
    """A person's order asks no policy; the pages only start it and show the board again."""
    job_id = enqueue(db, "patient", {"ends": True}, actor="test")

    answer = client.post("/drains", follow_redirects=False)

    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    eventually(lambda: state(db, job_id) is State.SUCCEEDED, "the job succeeded")
    drains = application.state.drains
    eventually(lambda: drains.alive() == 0, "the drain has ended and was reaped")
    assert drains.trouble() is None


@pytest.mark.requirement("LN-02")
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_web_process_does_not_touch_a_run(
    db: Database, settings: WorkerSettings, sign: signal.Signals
) -> None:
    """Neither Ctrl-C nor a kill: the drain goes on, and still obeys its own stop."""
    job_id = enqueue(db, "patient", {}, actor="test")
    with Served() as served:
        _post(served.url, bearer(db))
        eventually(lambda: jobs.get_job(db, job_id).result.get("step") == 1, "the job runs")
        drain = psutil.Process(lane_status(db, settings.lane).pid)
        assert os.getsid(drain.pid) == drain.pid != os.getsid(served.child.pid)
        served.child.send_signal(sign)
        served.child.wait(10)

    assert drain.is_running()
    assert state(db, job_id) is State.RUNNING
    drain.terminate()
    eventually(lambda: state(db, job_id) is State.QUEUED, "the job went back to the queue")
    eventually(lambda: ended(drain), "the drain ended")


def _post(url: str, headers: dict[str, str]) -> None:
    answer = httpx.post(f"{url}drains", headers=headers, trust_env=False)
    assert answer.status_code == 303


@pytest.mark.requirement("LN-02")
@pytest.mark.usefixtures("patient")
def test_the_armed_timer_runs_the_queue_in_a_drain_of_its_own(
    db: Database, settings: WorkerSettings
) -> None:
    """The clock inside serve, a real scheduled drain, a job that nobody else started."""
    armed(db, interval_min=0.02)
    job_id = enqueue(db, "patient", {"ends": True}, actor="test")

    application = create_app(AppSettings(), settings)
    with TestClient(application, base_url=ORIGIN):
        eventually(lambda: state(db, job_id) is State.SUCCEEDED, "the job succeeded")
        drains = application.state.drains
        eventually(lambda: drains.alive() == 0, "the drain has ended and was reaped")

    assert {entry.actor.partition(":")[0] for entry in jobs.audit(db, job_id)} == {"test", "drain"}


@pytest.mark.requirement("LN-02")
def test_the_timer_is_one_instance_coalesced_with_an_explicit_grace(
    db: Database, settings: WorkerSettings
) -> None:
    """A box that slept through ten ticks gets one of them, and never two at once."""
    armed(db, interval_min=30)
    ticker = Ticker(Drains(db, settings), db)

    ticker.start()

    try:
        timer = ticker.scheduler.get_job(TICK)
        assert (timer.max_instances, timer.coalesce) == (1, True)
        assert timer.misfire_grace_time == MISFIRE_GRACE_S
        assert timer.trigger.interval.total_seconds() == 30 * 60
    finally:
        ticker.shutdown()


@pytest.mark.requirement("LN-02")
@pytest.mark.usefixtures("patient")
def test_a_tick_that_meets_crons_drain_leaves_the_lane_to_it(
    db: Database, settings: WorkerSettings
) -> None:
    """Tick and cron may both be set up: the second to come ends, and nobody is alarmed."""
    job_id = enqueue(db, "patient", {}, actor="test")
    cron = spawn_cockpit(["drain"], settings, "cron.log")
    eventually(lambda: jobs.get_job(db, job_id).result.get("step") == 1, "cron's drain runs it")
    drains = Drains(db, settings)

    drains.run_now()
    eventually(lambda: drains.alive() == 0, "the second drain has ended")

    assert drains.trouble() is None
    assert cron.poll() is None
    cron.stop(patience_s=30)
    assert state(db, job_id) is State.QUEUED


def test_an_armed_tick_starts_a_scheduled_drain_by_the_clock(
    db: Database, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real timer, at a short interval; the lifespan starts and stops it."""
    calls: list[str] = []
    monkeypatch.setattr(Drains, "tick", lambda _: calls.append("tick"))
    armed(db, interval_min=0.02)

    with TestClient(create_app(AppSettings(), settings), base_url=ORIGIN):
        eventually(lambda: len(calls) >= 2, "two ticks", within_s=20)

    assert set(calls) == {"tick"}


@pytest.mark.requirement("LN-01")
def test_the_timer_follows_the_policy_while_the_board_is_up(
    db: Database, settings: WorkerSettings
) -> None:
    """Nothing ticks until somebody arms it; a new interval counts, and off ends it."""
    ticker = Ticker(Drains(db, settings), db)
    ticker.start()
    try:
        assert ticker.scheduler.get_job(TICK) is None
        armed(db, interval_min=30)
        ticker.follow()
        first = ticker.scheduler.get_job(TICK).trigger.interval.total_seconds()
        armed(db, interval_min=10)
        ticker.follow()
        second = ticker.scheduler.get_job(TICK).trigger.interval.total_seconds()
        disarm(db, actor="test", now=time.time())
        ticker.follow()

        assert (first, second) == (30 * 60, 10 * 60)
        assert ticker.scheduler.get_job(TICK) is None
    finally:
        ticker.shutdown()


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A tick adds to it and starts nothing."""
    calls: list[str] = []
    monkeypatch.setattr(Drains, "tick", lambda _: calls.append("tick"))
    return calls


@pytest.mark.requirement("LN-02")
def test_arming_is_followed_by_a_look_at_once(
    db: Database, settings: WorkerSettings, ticks: list[str]
) -> None:
    """Not an interval later; so is a change of the terms."""
    ticker = Ticker(Drains(db, settings), db)
    ticker.start()
    try:
        armed(db, interval_min=600)
        ticker.follow()
        eventually(lambda: len(ticks) == 1, "a look as it is armed")
        armed(db, interval_min=500)
        ticker.follow()
        eventually(lambda: len(ticks) == 2, "a look as the terms change")
        for _ in range(3):
            ticker.follow()
    finally:
        ticker.shutdown()
    assert len(ticks) == 2


@pytest.mark.requirement("LN-02")
def test_a_board_that_starts_looks_when_the_one_before_it_would_have(
    db: Database, settings: WorkerSettings, ticks: list[str]
) -> None:
    """A restart neither loses a look nor makes one more."""
    armed(db, interval_min=600)
    first = Ticker(Drains(db, settings), db)
    first.start()
    due = looks_of(settings, None, time.time())
    first.shutdown()
    second = Ticker(Drains(db, settings), db)
    second.start()
    again = looks_of(settings, None, time.time())
    second.shutdown()
    assert due.serve_at is not None
    assert again.serve_at == pytest.approx(due.serve_at, abs=1)
    assert ticks == []

    late = Ticker(Drains(db, settings), db, clock=lambda: time.time() + 36_100)
    late.start()
    try:
        eventually(lambda: len(ticks) == 1, "the look that was due while no board was up")
    finally:
        late.shutdown()


@pytest.mark.requirement("LN-02")
@pytest.mark.parametrize("set_s", [-3600.0, 3600.0, -86_400.0])
def test_a_clock_that_is_set_stops_no_timer(
    db: Database, settings: WorkerSettings, ticks: list[str], set_s: float
) -> None:
    """A timer of the wall clock would wait for the hour that is lived again."""
    armed(db, interval_min=600)
    now, beat = time.time(), 100.0
    ticker = Ticker(Drains(db, settings), db, clock=lambda: now, beat=lambda: beat)
    ticker.start()
    try:
        assert ticks == []
        now, beat = now + 5 + set_s, beat + 5
        ticker.follow()
        eventually(lambda: len(ticks) == 1, "a look behind the change of the clock")
        now, beat = now + 5, beat + 5
        ticker.follow()
    finally:
        ticker.shutdown()
    assert len(ticks) == 1


def _counted(ticks: list[str], looks: int) -> bool:
    return len(ticks) == looks


@pytest.mark.requirement("LN-02")
def test_the_timer_looks_when_the_window_opens(
    db: Database, settings: WorkerSettings, ticks: list[str]
) -> None:
    """A window of 40 minutes between two looks of an interval of hours is not missed."""
    terms = Policy(interval_min=600, window="01:10-01:50", zone="UTC")
    now, beat = 20_000 * 86_400.0, 100.0  # a midnight
    arm(db, terms, actor="test", now=now)
    ticker = Ticker(Drains(db, settings), db, clock=lambda: now, beat=lambda: beat)
    ticker.start()
    try:
        for seconds, looks in ((4195.0, 0), (10.0, 1), (5.0, 1)):  # 01:09:55, 01:10:05, 01:10:10
            now, beat = now + seconds, beat + seconds
            ticker.follow()
            eventually(partial(_counted, ticks, looks), "a look at the opening alone")
    finally:
        ticker.shutdown()


@pytest.mark.requirement("LN-02")
def test_a_tick_starts_nothing_when_nothing_is_queued_or_the_lane_is_at_work(
    db: Database, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain that could only find the lane held would be noise in the log."""
    started: list[tuple[str, ...]] = []
    monkeypatch.setattr(Drains, "_start", lambda _, *what, **__: started.append(what))
    drains = Drains(db, settings)

    drains.tick()
    assert started == []
    queue(db)
    with night(db) as lane:
        lane.start()
        queue(db)
        drains.tick()
        assert started == []
    drains.tick()

    assert started == [("drain", "--scheduled")]


def test_a_tick_starts_a_drain_for_checkpoints_that_wait_to_be_scored(
    db: Database, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is over and nothing is queued: the drain makes the job."""
    started: list[tuple[str, ...]] = []
    monkeypatch.setattr(Drains, "_start", lambda _, *what, **__: started.append(what))
    evaluate = {"benches": [{"source": "embedded:addition", "verifier": "exact"}]}
    queue(db, evaluate=evaluate)
    with night(db) as lane:
        lane.start().finish()

    Drains(db, settings).tick()

    assert started == [("drain", "--scheduled")]
    queue_evaluations(db, actor="test")
    Drains(db, settings).tick()
    assert len(started) == 1


class Started:
    """A drain that was started and does nothing; it ends when a test says so."""

    def __init__(self, pid: int) -> None:
        self.process = self
        self.pid = pid
        self.status: int | None = None

    def poll(self) -> int | None:
        return self.status


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Started]]:
    """What the drains of this process were started as; the first has this test's own process."""
    found: list[tuple[str, Started]] = []

    def spawn(arguments: Sequence[str], *_: object) -> Started:
        found.append((" ".join(arguments), Started(os.getpid() if not found else -len(found))))
        return found[-1][1]

    monkeypatch.setattr(app.web.ticker, "spawn_cockpit", spawn)
    return found


@pytest.mark.requirement("LN-02")
def test_a_tick_starts_no_second_drain_while_its_own_still_starts_up(
    db: Database, settings: WorkerSettings, started: list[tuple[str, Started]]
) -> None:
    """Python takes a second to start: at a tiny interval the machine would fill with drains."""
    queue(db)
    drains = Drains(db, settings)

    for _ in range(3):
        drains.tick()
    assert [what for what, _ in started] == ["drain --scheduled"]
    drains.run_now()
    drains.tick()
    assert [what for what, _ in started] == ["drain --scheduled", "drain"]
    started[0][1].status = 0
    drains.tick()

    assert [what for what, _ in started] == ["drain --scheduled", "drain", "drain --scheduled"]


@pytest.mark.requirement("LN-02")
def test_a_tick_replaces_its_own_drain_that_holds_the_lane_and_fell_silent(
    db: Database, settings: WorkerSettings, started: list[tuple[str, Started]]
) -> None:
    """It lives and does nothing; once is enough, the next drain takes the lane over."""
    queue(db)
    drains = Drains(db, settings)
    drains.tick()

    with hold_lane(db, settings):
        with db.write_tx() as conn:
            conn.execute(update(lane).values(heartbeat_at=time.time() - settings.lease_s - 9))
        for _ in range(3):
            drains.tick()

    assert [what for what, _ in started] == ["drain --scheduled"] * 2


def test_a_drain_that_fails_is_told_on_the_board(
    client: TestClient, application: FastAPI, db: Database
) -> None:
    """The reason and the file of its output; nobody has to guess why nothing runs."""
    queue(db)
    drains = application.state.drains
    drains._start("drain", "--no-such-option", log_name="drain.log")

    eventually(lambda: drains.alive() == 0, "the drain has ended")

    text = client.get("/").text
    assert "the last drain started from here failed: Error: No such option" in text
    assert "drain.log" in text
