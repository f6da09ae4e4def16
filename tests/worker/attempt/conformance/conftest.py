"""One runner after the other, and supervisors that can be killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from engine.contract.run_dir import RunDir
from tests.worker.attempt.conformance import runners
from worker.attempt.runner.base import Runner
from worker.settings import WorkerSettings


@pytest.fixture(params=runners.RUNNERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def runner(name: str, settings: WorkerSettings) -> Iterator[Runner]:
    """Nothing that a test has left running outlives it."""
    runner = runners.RUNNERS[name](settings)
    yield runner
    for attempt in settings.runs_dir.glob("*/attempts/*"):
        runner.kill(RunDir(attempt.parents[1]), int(attempt.name), None)


@pytest.fixture
def supervise(name: str, runner: Runner) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Start a drain in a process of its own."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-m", runners.__name__, name]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
