"""A data directory of its own, a kind in one file, and drains as real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.contract import kinds, registry
from tests.worker.lane_rows import NOON
from tests.worker.memory.shortage import Shortage
from worker.db.connection import Database, open_database
from worker.queue.submit import enqueue
from worker.schedule.policy import Policy, Standing, arm
from worker.settings import WorkerSettings

TALLY = '''
"""Counts; checkpoints after each step; misbehaves on request."""

import os
import signal
import subprocess
import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from engine.contract.kind import Kind
from engine.contract.run_dir import ExitCode, complete_checkpoints, write_json


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid")
    steps: int = 3
    seed: int = 0
    pace: str | None = None  # each step from the second on waits until this file exists
    at_end: str = "return"
    reads: str | None = None
    leaves_child: str | None = None  # file that gets the pid of a process it leaves behind
    sends_away: str | None = None  # file that gets the pid of a process in a session of its own
    deaf: bool = False  # ignores the sentinel
    saves: bool = True  # writes checkpoints
    ranks: int = 1  # of several the last one crashes


def run(attempt):
    config, events = attempt.config, attempt.events
    done = [step for step, _ in complete_checkpoints(attempt.run)]
    first = max(done, default=0)
    events.write("started", resumed_from=first or None)
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    events.write("note", level="info", code="DEVICES", text=devices)
    events.write("progress", phase="training", step=first, max_steps=config.steps)
    if config.leaves_child:
        child = subprocess.Popen(["sleep", "600"])
        Path(config.leaves_child).write_text(str(child.pid))
    if config.sends_away:
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        note = Path(config.sends_away)
        note.with_suffix(".part").write_text(str(child.pid))
        note.with_suffix(".part").rename(note)
    for step in range(first + 1, config.steps + 1):
        events.write("metric", step=step, values={"pool/score": step / 10, "train/loss": None})
        events.write("progress", step=step, pool_score=step / 10)
        if config.saves:
            folder = attempt.run.checkpoint(step)
            folder.mkdir(parents=True, exist_ok=True)  # a kill may have left it half-written
            (folder / "count").write_text(str(step))
            write_json(folder / "complete.json", {"step": step, "files": {}})
        while config.pace and not Path(config.pace).exists():
            if attempt.should_abort() and not config.deaf:
                events.write("finished", status="aborted", result={"aborted": True})
                events.close()
                os._exit(ExitCode.ABORTED)
            time.sleep(0.01)
    events.write("gate", step=config.steps, split="select", score=0.75, n=100, ci95=[0.66, 0.82])
    if config.at_end == "crash" and os.environ.get("RANK", "0") == str(config.ranks - 1):
        raise ValueError("the tally fell over")
    if config.at_end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if config.at_end == "decline":
        result = {"cause": "NO_HEADROOM", "error": "it can do the task already"}
        events.write("finished", status="declined", result=result)
        os._exit(ExitCode.DECLINED)
    if config.at_end == "silent":
        return None
    return {"kind": "tally", "total": config.steps}


KIND = Kind(
    name="tally",
    summary="Counts.",
    config=Config,
    entry=f"{__name__}:run",
    steps="steps",
    inputs=lambda config: [Path(config.reads)] if config.reads else [],
)
'''

DRAIN = """
import sys
from worker.drain import drain
from worker.settings import WorkerSettings
from engine.contract.errors import NightlaneError
try:
    report = drain(WorkerSettings(), wait="--wait" in sys.argv)
except NightlaneError as error:
    sys.exit(f"{type(error).__name__}: {error}")
print([(settled.job_id, settled.state.value) for settled in report.ran])
"""


@pytest.fixture(scope="session")
def kinds_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operator's directory of kinds, with one file in it."""
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "tally.py").write_text(TALLY)
    return folder


@pytest.fixture
def settings(
    tmp_path: Path, kinds_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WorkerSettings]:
    """A fresh data and lock directory, known to this process and to its children."""
    monkeypatch.setenv("NIGHTLANE_KINDS_PATH", str(kinds_path))
    monkeypatch.setenv("NIGHTLANE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("NIGHTLANE_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setenv("NIGHTLANE_LANE", "cpu")
    monkeypatch.setenv("NIGHTLANE_POLL_S", "0.02")
    monkeypatch.setenv("NIGHTLANE_THROTTLE_S", "0")
    monkeypatch.setenv("NIGHTLANE_HEARTBEAT_S", "0.2")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(kinds_path)])
    registry.kinds.cache_clear()
    yield WorkerSettings()
    registry.kinds.cache_clear()


@pytest.fixture
def db(settings: WorkerSettings) -> Iterator[Database]:
    """A migrated SQLite file."""
    with open_database(settings) as database:
        yield database


@pytest.fixture
def tally(db: Database) -> Callable[..., int]:
    """Enqueue a tally; returns the job's id."""
    return lambda **config: enqueue(db, "tally", config, actor="test", force=True)


@pytest.fixture
def armed(db: Database) -> Callable[..., Standing]:
    """Arm the lane; `at` is when."""

    def switch(at: float = NOON, **terms: Any) -> Standing:
        policy = Policy(**{"zone": "Europe/Berlin"} | terms)
        return arm(db, policy, actor="test", now=at)

    return switch


@pytest.fixture
def priced(db: Database) -> Callable[..., WorkerSettings]:
    """Change settings of the worker behind this database."""

    def change(**values: Any) -> WorkerSettings:
        db.settings = db.settings.model_copy(update=values)
        return db.settings

    return change


@pytest.fixture
def shortage(settings: WorkerSettings, tmp_path: Path) -> Shortage:
    """Free memory as the test says."""
    return Shortage(settings, tmp_path / "meminfo")


class DrainProcess:
    """`drain()` in a process of its own."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", DRAIN, *arguments],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, timeout: float = 60) -> tuple[int, str, str]:
        """(exit code, stdout, stderr)."""
        out, err = self.child.communicate(timeout=timeout)
        return self.child.returncode, out, err

    def signal(self, number: signal.Signals) -> None:
        self.child.send_signal(number)


@pytest.fixture
def start_drain(settings: WorkerSettings) -> Iterator[Callable[..., DrainProcess]]:
    """Start drains; whatever a test leaves running is killed."""
    started: list[DrainProcess] = []

    def start(*arguments: str, **environment: str) -> DrainProcess:
        started.append(DrainProcess(*arguments, **environment))
        return started[-1]

    yield start
    for process in started:
        if process.child.poll() is None:
            process.child.kill()
        process.child.communicate()
