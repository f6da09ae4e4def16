"""Memory beside one running attempt: the sentry process, and the trace that is kept of it.

The sentry decides and acts (`worker.memory.sentry`); this starts it before the engine, tells it
where the training stands, replaces it when it dies, and writes down what it read.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from typing import Any

from engine.contract.errors import NightlaneError
from engine.contract.run_dir import AttemptDir
from worker.memory.own import OwnMemory
from worker.memory.readings import HostMemory
from worker.memory.rule import limits
from worker.memory.sentry import READY, Plan, device_of
from worker.memory.trace import MemoryLog, MemTrace
from worker.settings import WorkerSettings

KEEP_S = 5.0
"""Seconds between two writes of the trace."""
SENTRY = ("-P", "-m", "worker.memory.sentry")
START_PATIENCE_S = 10.0
"""Seconds a sentry may take to start."""


class WatchdogError(NightlaneError):
    """No engine runs unguarded."""

    retryable = True


class MemoryGuard:
    """The sentry and the trace of one attempt. Close it when the engine is gone."""

    def __init__(self, settings: WorkerSettings, attempt: AttemptDir) -> None:
        """Raises WatchdogError when no sentry starts."""
        self._settings = settings
        self._attempt = attempt
        host = HostMemory(settings.meminfo, settings.memory_total_gb)
        headroom, total = host.free_gb(), host.total_gb()
        self.limits = limits(settings, total or 0.0)
        self._trace = (
            None
            if total is None or headroom is None
            else MemTrace.at_spawn(round(total, 3), round(headroom, 3))
        )
        self._log = MemoryLog(attempt.root)
        self.killed = False
        """Whether the sentry killed the engine's group."""
        self._engine: int | None = None
        self._own: OwnMemory | None = None
        self._told: dict[str, Any] = {}
        self._heard = b""
        self._keep_due = time.monotonic() + KEEP_S
        self._sentry = self._start()

    def guard(self, engine: int) -> None:
        """`engine`: the pid that leads the group to kill."""
        self._engine = engine
        self._own = OwnMemory(engine)
        self._tell({"engine": engine})

    def look(self, phase: str | None, step: int | None = None) -> None:
        """Take in what the sentry said; tell it where the training stands."""
        self._take_in(phase)
        if self._own is not None and self._trace is not None:
            self._trace.own_peak_gb = self._own.look(time.monotonic())
        if self._sentry.poll() is not None:
            self._replace()
        place = {"phase": phase, "step": step}
        if place != self._told and self._tell(place):
            self._told = place
        now = time.monotonic()
        if now >= self._keep_due:
            self._keep_due = now + KEEP_S
            self.keep()

    def keep(self) -> None:
        """Write the trace to the attempt's directory; a full disk costs the trace, not the run."""
        if self._trace is not None:
            with contextlib.suppress(OSError):
                self._trace.write(self._attempt.root)

    def close(self) -> None:
        """End the sentry and take in its last word; the engine must be gone. Once is enough."""
        stdin, stdout = self._pipes()
        if stdout.closed:
            return
        stdin.close()
        try:
            self._sentry.wait(START_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._sentry.kill()
            self._sentry.wait()
        self._take_in(self._told.get("phase"))
        stdout.close()

    def _start(self) -> subprocess.Popen[bytes]:
        settings = self._settings
        plan = Plan(
            attempt=str(self._attempt.root),
            limits=self.limits,
            meminfo=str(settings.meminfo),
            total_gb=settings.memory_total_gb,
            device=device_of(settings.lane),
            device_floor_gb=settings.device_floor_gb,
            fastest_file=str(settings.data_dir / "fastest_fall.json"),
        )
        try:
            sentry = subprocess.Popen(
                [sys.executable, *SENTRY, plan.argument()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise _unguarded(f"did not start: {error}") from error
        assert sentry.stdout is not None
        answered, _, _ = select.select([sentry.stdout], [], [], START_PATIENCE_S)
        if not answered or sentry.stdout.read(len(READY)) != READY:
            with sentry:  # closes its pipes and waits
                sentry.kill()
            late = f"did not start in {START_PATIENCE_S:.0f} s"
            raise _unguarded("ended at its start" if answered else late)
        os.set_blocking(sentry.stdout.fileno(), False)
        return sentry

    def _replace(self) -> None:
        """The sentry died: another one takes over."""
        for pipe in self._pipes():
            pipe.close()
        self._sentry = self._start()
        self._heard, self._told = b"", {}
        if self._engine is not None:
            self._tell({"engine": self._engine})

    def _pipes(self) -> Any:
        return self._sentry.stdin, self._sentry.stdout

    def _tell(self, message: dict[str, Any]) -> bool:
        """A few bytes into an empty pipe: it takes them, unless the sentry is gone."""
        stdin, _ = self._pipes()
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps(message).encode() + b"\n")
            return True
        return False

    def _take_in(self, phase: str | None) -> None:
        _, stdout = self._pipes()
        while heard := stdout.read(65536):
            *lines, self._heard = (self._heard + heard).split(b"\n")
            for line in lines:
                self._note(json.loads(line), phase)

    def _note(self, said: dict[str, Any], phase: str | None) -> None:
        self.killed = self.killed or said.get("action") == "kill"
        if self._trace is None:
            return
        if said.get("action") in ("stop", "kill"):
            self._trace.abort_headroom_gb = said["free_gb"]
        least = said.get("least_gb", said["free_gb"])
        if least is None:
            return
        self._trace.saw(least, phase)
        if "at" in said:
            self._log.note(said["at"], least, phase)


def _unguarded(what: str) -> WatchdogError:
    return WatchdogError(
        f"the memory watchdog {what}; the job is queued, no engine runs unguarded; "
        "see whether the machine is short of memory"
    )
