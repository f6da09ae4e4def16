"""Cockpit commands started by the cockpit: own session, output in a file, no inherited handles.

A drain started here outlives the process that started it; a web process may be bound to it
instead. It knows how to start and end them, not what they do.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from worker.settings import WorkerSettings

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded before any fork


@dataclass(frozen=True)
class Detached:
    """A started command and the file its output goes to."""

    process: subprocess.Popen[bytes]
    log: Path
    log_start: int
    """Byte of the log at which its output begins."""

    def poll(self) -> int | None:
        """Its exit status, None while it runs."""
        return self.process.poll()

    def last_line(self) -> str:
        """The last thing it said: for a command that failed, the reason."""
        lines = [line.strip() for line in self.output().splitlines()]
        return next((line for line in reversed(lines) if line), "").removeprefix("cockpit: ")

    def output(self) -> str:
        """All it said so far, without what earlier commands left in the same file."""
        with self.log.open("rb") as stream:
            stream.seek(self.log_start)
            return stream.read().decode("utf-8", errors="replace")

    def stop(self, patience_s: float) -> None:
        """SIGTERM, and SIGKILL when it has not ended after `patience_s` seconds."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def spawn_cockpit(
    arguments: Sequence[str], settings: WorkerSettings, log_name: str, *, bound: bool = False
) -> Detached:
    """Start `cockpit ARGUMENTS` on the same data directory, in a session of its own.

    `bound`: it ends with the process that starts it, even when that one is killed.
    """
    log = settings.data_dir / "logs" / log_name
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "NIGHTLANE_DATA_DIR": str(settings.data_dir),
        "NIGHTLANE_LANE": settings.lane,
        "NIGHTLANE_LOCK_DIR": str(settings.lock_dir),
    }
    with log.open("ab") as output:
        log_start = output.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
            preexec_fn=partial(_end_with_parent, os.getpid()) if bound else None,  # noqa: PLW1509 - one thread here
        )
    return Detached(process, log, log_start)


def _end_with_parent(parent: int) -> None:
    """Linux: the kernel sends SIGTERM to this child when its parent thread ends. Where that came
    first there is nothing to start.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)
