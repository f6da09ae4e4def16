"""Engines as processes of this machine, on the run directory itself, each with its watchdog."""

from __future__ import annotations

import logging
from contextlib import closing

from engine.contract.run_dir import Abort, RunDir
from worker.attempt.disk import full_disk
from worker.attempt.runner.base import Exit
from worker.attempt.runner.process import ENGINE, PATIENCE_S, EngineProcess
from worker.lane import cgroup
from worker.lane.process_id import ProcessIdentity
from worker.lane.strays import end_attempt
from worker.memory.guard import MemoryGuard
from worker.settings import WorkerSettings

_LOG = logging.getLogger(__name__)


class LocalRunner:
    """Starts from the main thread alone: an engine dies with the thread that started it."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        own = settings.devices
        self._lane = {} if own is None else {"CUDA_VISIBLE_DEVICES": own}
        """What an engine is told of the lane: its accelerators, where the lane names them."""

    def start(self, run: RunDir, attempt: int) -> LocalEngine:
        """The watchdog first: no engine runs without one."""
        directory = run.attempt(attempt)
        memory = MemoryGuard(self._settings, directory)
        try:
            process = EngineProcess.start(ENGINE, run.root, directory.log, self._lane)
        except BaseException:
            memory.close()
            raise
        memory.guard(process.identity.pid)
        return LocalEngine(run, attempt, process, memory)

    @staticmethod
    def kill(run: RunDir, attempt: int, engine: str | None) -> None:
        """The engine's group, and its strays among the processes of this machine."""
        identity = ProcessIdentity.parse(engine) if engine else None
        log = run.attempt(attempt).log
        if identity is not None and identity.of_this_boot() and not cgroup.held(log):
            _LOG.warning(
                "%s: no control group held what this engine started; a process that cleared its "
                "environment and its output may still run and use the lane, see: "
                "ps -eo pid,ppid,lstart,args",
                run.root,
            )
        end_attempt(identity, log, patience_s=PATIENCE_S)

    @staticmethod
    def fetch(run: RunDir, attempt: int) -> None:
        """Everything is here."""


class LocalEngine:
    """A child of this process and the sentry beside it."""

    def __init__(
        self, run: RunDir, attempt: int, process: EngineProcess, memory: MemoryGuard
    ) -> None:
        self.identity = str(process.identity)
        self._run = run
        self._directory = run.attempt(attempt)
        self._process = process
        self._memory = memory
        self._exit: Exit | None = None

    def follow(self, phase: str | None, step: int | None) -> Exit | None:
        """Ended: its process is gone and the sentry has told all."""
        if self._exit is None:
            status = self._process.poll()
            # Now: by the time that a database on the same disk can be written, there is room again.
            full = "" if status is None else full_disk(self._run.root)
            self._memory.look(phase, step)
            if status is not None:
                self._close(status, full)
        return self._exit

    def ask_to_stop(self, request: Abort) -> None:
        """Most requests come by the sentinel itself."""
        if not self._directory.abort.exists():
            self._directory.request_abort(request)

    def kill(self) -> None:
        if self._exit is None:
            with closing(self._memory):
                self._close(self._process.kill(), full_disk(self._run.root))

    def _close(self, status: int, full: str) -> None:
        # The sentry kills first and tells afterwards: its last word is evidence.
        self._memory.close()
        self._memory.keep()
        self._exit = Exit(status, self._memory.killed, full)
