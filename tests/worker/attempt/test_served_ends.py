"""Served runs whose server hangs, lies or goes away, in a real drain: seen, said, ended by name.

The server is a stand-in with real weights; what misbehaves is the door in front of it, or the
kernel, which stops it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from engine.__main__ import main
from engine.contract.ends import OF_SERVERS, SERVER_LOST
from engine.contract.run_dir import ExitCode, RunDir
from engine.contract.serving import Serving
from engine.models import lora, tiny
from tests.deadline import eventually
from tests.engine.conftest import add_attempt, base_folder, base_recipe, events_of, sevens_file
from tests.engine.sampling.vllm import stand_in
from tests.engine.sampling.vllm.conftest import free_port
from tests.worker.attempt.front import Front, Trick
from worker.attempt.settlement import SERVER_PAUSE_S
from worker.attempt.silence import FACTOR, PATIENCE, Silence
from worker.clock.night import night_at
from worker.db.connection import Database
from worker.db.tables import attempt
from worker.db.zone import lane_zone
from worker.drain import drain
from worker.queue.control import retry
from worker.queue.deferral import Reason
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.read import jobs
from worker.read.diagnosis import Level, diagnose
from worker.report.going import going_on
from worker.settings import WorkerSettings

__all__ = ["base_folder", "base_recipe", "sevens_file"]

pytestmark = pytest.mark.timeout(1200)
FIRST_S, LEAST_S = 60.0, 4.0
"""An operator's limits; where nothing is learnt yet an engine's imports on a busy machine count."""
BEFORE_STEP_1_S = 12.0
"""The first of them, for a test that waits three times as long."""


class Server:
    """A process of somebody else's."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"

    def healthy(self) -> bool:
        assert self.process.poll() is None
        try:
            return httpx.get(f"{self.url}/health", trust_env=False).is_success
        except httpx.HTTPError:
            return False


@pytest.fixture(scope="module")
def server(base_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """It serves the base of all runs here, and outlives them."""
    folder, port = tmp_path_factory.mktemp("adapter"), free_port()
    lora.save(lora.attach_zero(tiny.build_model(3), rank=4, alpha=8, seed=0), folder / "first")
    words = [sys.executable, str(stand_in.__file__), str(base_folder), "--port", str(port)]
    words += ["--max-model-len", "64", "--lora-modules", f"policy={folder / 'first'}"]
    env = {**os.environ, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
    process = subprocess.Popen(words, env=env)
    found = Server(process, port)
    try:
        eventually(found.healthy, "the stand-in is up", within_s=300)
        yield found
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(30)


@pytest.fixture
def hasty(settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch) -> WorkerSettings:
    """Silence is seen within seconds, and no program is asked for."""
    monkeypatch.setenv("NIGHTLANE_SILENCE_S", str(FIRST_S))
    monkeypatch.setenv("NIGHTLANE_SILENCE_LEAST_S", str(LEAST_S))
    monkeypatch.setenv("NIGHTLANE_ABORT_GRACE_S", "1")
    monkeypatch.setenv("NIGHTLANE_VLLM_BIN", "true")
    return WorkerSettings()


@pytest.fixture
def served(db: Database, base_recipe: dict[str, Any]) -> Callable[..., int]:
    """Enqueue a served run of three steps, with a checkpoint after each unless told."""
    raw = base_recipe | {"rollout_backend": "vllm", "tuning": "lora", "lora_rank": 4}
    raw |= {"max_steps": 3, "heldout_every": 3, "save_every": 1, "group_k": 4, "tasks_per_step": 4}
    raw |= {"data": raw["data"] | {"limit": 40}, "corpus_min": 20, "report_min": 5}
    return lambda **settings: enqueue(db, "rl_run", raw | settings, actor="test")


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


def drained(settings: WorkerSettings, url: str) -> list[tuple[int, State]]:
    """What ran, with this server at its address: attempt and state."""
    there = settings.model_copy(update={"vllm_url": f"{url}/v1"})
    return [(one.attempt, one.state) for one in drain(there).ran]


def run_of(db: Database, number: int) -> RunDir:
    return RunDir(db.settings.runs_dir / str(number))


def ends_of(db: Database, number: int) -> list[tuple[str, str | None]]:
    """State and cause of each attempt."""
    rows = select(attempt.c.outcome, attempt.c.cause).where(attempt.c.job_id == number)
    with db.read() as conn:
        return [(row.outcome, row.cause) for row in conn.execute(rows.order_by(attempt.c.n))]


# --- silence ---


@pytest.mark.requirement("LN-15")
def test_how_long_a_served_run_may_hang_by_default() -> None:
    """Said after 10 minutes while nothing is learnt of the phase, else after five of its longest
    stretches, at least one minute; ended after three times that, and killed two minutes later.
    """
    settings = WorkerSettings()
    now = [0.0]

    def quiet_until(ends: bool) -> float:
        silence = Silence(settings.silence_s, settings.silence_least_s, clock=lambda: now[0])
        for step in steps:
            silence.heard({"type": "progress", "phase": "sampling", "step": step})
            for _ in range(stretch):
                now[0] += 1
                silence.look()
        silence.heard({"type": "progress", "phase": "sampling"})
        began = now[0]
        while (found := silence.found()) is None or (ends and not found.overdue):
            now[0] += 1
            silence.look()
        return now[0] - began

    steps, stretch = range(0), 0
    assert (quiet_until(ends=False), quiet_until(ends=True)) == (600, 1800)
    steps, stretch = range(15), 4
    assert (quiet_until(ends=False), quiet_until(ends=True)) == (60, 180)
    steps, stretch = range(15), 40
    assert (quiet_until(ends=False), quiet_until(ends=True)) == (200, 600)
    assert (FACTOR, PATIENCE, settings.abort_grace_s) == (5.0, 3.0, 120.0)


def said_of(db: Database, settings: WorkerSettings, number: int) -> None:
    """Board, report and doctor say that the run is silent, as soon as one of them does."""
    eventually(lambda: jobs.get_job(db, number).result.get("silent_since"), "silence", 300)
    now = jobs.get_job(db, number).heartbeat_at or 0.0
    risks = [one.detail for one in diagnose(settings) if one.level is Level.RISK]
    assert any(f"SILENT: job {number} has written no event" in detail for detail in risks)
    assert going_on(db, night_at(now, lane_zone(db)), now)[0].silent_since


def resumed_after_silence(db: Database, number: int, ran: list[tuple[int, State]]) -> None:
    assert ran == [(1, State.QUEUED), (2, State.SUCCEEDED)]
    assert ends_of(db, number)[0] == (State.QUEUED, "SILENT")
    said = [row.why for row in jobs.audit(db, number)]
    assert any(why.startswith("SILENT: no event for") for why in said)
    assert any(why.startswith("stopped (silent), to resume") for why in said)
    assert "silent_since" not in jobs.get_job(db, number).result


@pytest.mark.requirement("LN-15")
@pytest.mark.parametrize(
    ("trick", "nth", "from_step"),
    [("hang", 1, 0), ("drip", 3, 2)],
    ids=["before step 1", "a byte a second at step 3"],
)
@pytest.mark.usefixtures("hasty")
def test_a_call_that_does_not_come_back_is_said_and_ended(
    db: Database,
    served: Callable[..., int],
    server: Server,
    trick: Trick,
    nth: int,
    from_step: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine waits inside a library and hears nothing; the run goes on where it was."""
    if from_step == 0:
        monkeypatch.setenv("NIGHTLANE_SILENCE_S", str(BEFORE_STEP_1_S))
    hasty = WorkerSettings()
    number = served()
    with Front(server.url, trick, nth) as front:

        def look() -> None:
            eventually(front.playing.is_set, "the call", 300)
            said_of(db, hasty, number)
            eventually(lambda: jobs.get_job(db, number).attempt == 2, "the second attempt", 300)
            front.heal()

        with beside(look):
            ran = drained(hasty, front.url)

    resumed_after_silence(db, number, ran)
    resumed = [event["resumed_from"] for event in events_of(run_of(db, number), "started")]
    assert resumed == [None, from_step]


@pytest.mark.requirement("LN-15")
def test_a_server_stopped_by_the_kernel_is_said_and_its_run_ended(
    hasty: WorkerSettings, db: Database, served: Callable[..., int], server: Server
) -> None:
    """It keeps its port and takes connections; its probe is no sign of life any more."""
    number = served()

    def stop() -> None:
        eventually(lambda: (jobs.get_job(db, number).result.get("step") or 0) >= 2, "step 2", 300)
        server.process.send_signal(signal.SIGSTOP)
        try:
            said_of(db, hasty, number)
            eventually(lambda: jobs.get_job(db, number).attempt == 2, "the second attempt", 300)
        finally:
            server.process.send_signal(signal.SIGCONT)

    with beside(stop):
        ran = drained(hasty, server.url)

    resumed_after_silence(db, number, ran)


# --- ends by name ---


@pytest.mark.requirement("JB-08")
def test_a_server_that_goes_away_puts_its_run_back(
    hasty: WorkerSettings, db: Database, served: Callable[..., int], server: Server
) -> None:
    """Not a crash and not a failure: it goes on from its last whole step when its time has come."""
    number = served(save_every=3)
    with Front(server.url, "gone", 3) as front:
        ran = drained(hasty, front.url)

    assert ran == [(1, State.QUEUED)]
    assert ends_of(db, number) == [(State.QUEUED, SERVER_LOST)]
    job = jobs.get_job(db, number)
    assert job.waits_for is not None
    assert job.waits_for.reason == Reason.SERVER_LOST
    assert front.url in job.waits_for.detail
    assert job.waits_for.detail.endswith("lost 1 of 5 times")
    [finished] = events_of(run_of(db, number), "finished")
    assert job.waits_for.next_eligible_at == pytest.approx(finished["t"] + SERVER_PAUSE_S, abs=15)
    # step 2 was whole, and no checkpoint was due
    assert run_of(db, number).checkpoint(2).is_dir()
    assert finished["result"]["cause"] == SERVER_LOST
    assert finished["result"]["steps"] == 2

    assert drained(hasty, server.url) == [
        (2, State.SUCCEEDED)
    ]  # a person's drain waits for nothing
    started = events_of(run_of(db, number), "started")
    assert [event["resumed_from"] for event in started] == [None, 2]


def test_a_server_that_lies_fails_its_run_by_name_and_a_retry_goes_on(
    hasty: WorkerSettings, db: Database, served: Callable[..., int], server: Server
) -> None:
    """The job's settings are not to blame, and nothing that it said is trained on."""
    number = served()
    with Front(server.url, "lie", 3) as front:
        assert drained(hasty, front.url) == [(1, State.FAILED)]

        job = jobs.get_job(db, number)
        assert job.cause in OF_SERVERS - {SERVER_LOST}
        assert job.error is not None
        assert "prompt" in job.error
        assert "crash" not in job.error
        [finished] = events_of(run_of(db, number), "finished")
        assert finished["status"] == "declined"
        front.heal()
        retry(db, number, actor="test")
        assert drained(hasty, front.url) == [(2, State.SUCCEEDED)]

    started = events_of(run_of(db, number), "started")
    assert [event["resumed_from"] for event in started] == [None, 2]


@pytest.mark.requirement("LN-04")
def test_without_a_drain_a_missing_program_is_a_config_error(
    base_recipe: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A drain would have put the job off; `python -m engine run` has nobody to wait for."""
    serving = Serving(url=f"http://127.0.0.1:{free_port()}/v1", program="/nowhere/vllm")
    raw = base_recipe | {"rollout_backend": "vllm", "tuning": "lora", "lora_rank": 4}
    run = add_attempt(tmp_path, raw, serving=serving)

    code = main(["run", str(run.root)])

    assert code == ExitCode.CONFIG
    [line] = capfd.readouterr().err.strip().splitlines()
    assert "/nowhere/vllm cannot be run: No such file or directory" in line
    assert not list(run.root.glob("rollouts/*"))
