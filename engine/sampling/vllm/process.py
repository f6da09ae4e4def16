"""The serving program as a child process: started, watched, and ended with all it started.

What ends it when this process is killed stands in `engine.sampling.vllm.supervisor`. Knows no route
of the server and no weights.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil

from engine.sampling.vllm import supervisor

_PATIENCE_S = supervisor.STOP_S + supervisor.GRACE_S + 10.0
_TAIL = 16 * 1024
_SHOWN = 300
"""Characters of a log's last line in a message."""


class ServerProcess:
    """One serving process with its output in a file. Start it from the main thread."""

    def __init__(self, guardian: subprocess.Popen[bytes], log: Path, position: int) -> None:
        self._guardian = guardian
        self._log = log
        self._position = position
        """Where this process's output begins."""

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        *,
        stop_cmd: str | None,
        log: Path,
        env: Mapping[str, str],
        folders: Sequence[Path] = (),
    ) -> Self:
        """`env` is added to this process's own; the output goes behind what the log holds;
        `folders` are taken away when this process is gone and could not do it.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            position = output.tell()
            guardian = subprocess.Popen(
                [
                    sys.executable,
                    "-IS",
                    supervisor.__file__,
                    str(os.getpid()),
                    stop_cmd or "",
                    os.pathsep.join(map(str, folders)),
                    *command,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **env},
                start_new_session=True,
            )
        return cls(guardian, log, position)

    def poll(self) -> int | None:
        """Exit status of the serving command, None while it runs."""
        return self._guardian.poll()

    def memory_gb(self) -> float:
        """Proportional memory (PSS) of all its processes, in GB (10⁹ bytes)."""
        total = 0
        for process in self._family():
            with contextlib.suppress(psutil.Error):
                total += process.memory_full_info().pss
        return total / 1e9

    def _family(self) -> Sequence[psutil.Process]:
        try:
            return psutil.Process(self._guardian.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def stop(self) -> None:
        """Nothing of it is left afterwards."""
        if self._guardian.poll() is None:
            self._guardian.send_signal(signal.SIGTERM)
        try:
            self._guardian.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._guardian.kill()
            self._guardian.wait()

    def log_tail(self) -> str:
        """The last line it wrote, shortened; empty when it wrote none."""
        with self._log.open("rb") as stream:
            stream.seek(max(self._position, self._log.stat().st_size - _TAIL))
            lines = stream.read().decode("utf-8", errors="replace").splitlines()
        return next((line.strip()[-_SHOWN:] for line in reversed(lines) if line.strip()), "")
