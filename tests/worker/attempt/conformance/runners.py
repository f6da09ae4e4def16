"""Every runner; `python -m …runners NAME` is a drain whose engines run there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from engine.contract.run_dir import RunDir
from tests.worker.attempt.conformance.apart import ApartRunner
from worker.attempt.runner.base import Runner
from worker.attempt.runner.local import LocalRunner
from worker.drain import drain
from worker.settings import WorkerSettings


def apart(settings: WorkerSettings) -> ApartRunner:
    return ApartRunner(settings.data_dir.parent / "apart")


RUNNERS: Mapping[str, Callable[[WorkerSettings], Runner]] = {"local": LocalRunner, "apart": apart}


def where_it_writes(runner: Runner, run: RunDir) -> RunDir:
    """The run directory that the engine sees."""
    return runner.copy_of(run) if isinstance(runner, ApartRunner) else run


if __name__ == "__main__":
    ours = WorkerSettings()
    drain(ours, runner=RUNNERS[sys.argv[1]](ours))
