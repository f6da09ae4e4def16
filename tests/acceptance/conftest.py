"""The real command line on a data directory of its own, and nothing left running."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

COCKPIT = [sys.executable, "-m", "app.cli"]


@dataclass(frozen=True)
class Cockpit:
    """Runs `cockpit …` as a user would, on one data directory."""

    data_dir: Path

    def __call__(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COCKPIT, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            cwd=self.data_dir.parent,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start it and return at once; its output goes to pipes."""
        return subprocess.Popen(
            [*COCKPIT, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.data_dir.parent,
        )

    def processes(self, *words: str) -> list[psutil.Process]:
        """Living processes that work on this data directory and have every word in their line."""
        found = []
        for process in psutil.process_iter():
            try:
                line = " ".join(process.cmdline())
                ours = process.environ().get("NIGHTLANE_DATA_DIR") == str(self.data_dir)
            except psutil.Error:
                continue
            alive = process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid()
            if ours and alive and all(word in line for word in words):
                found.append(process)
        return found


@pytest.fixture
def cockpit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cockpit]:
    """A cockpit on an empty data directory; a process left behind is a failure."""
    data_dir = tmp_path / "data"
    monkeypatch.setenv("NIGHTLANE_DATA_DIR", str(data_dir))
    product = Cockpit(data_dir)
    yield product
    left = product.processes("app.cli") + product.processes("engine")
    for process in left:
        process.send_signal(signal.SIGKILL)
    assert not left, f"left running: {left}"


@pytest.fixture
def port() -> int:
    """A loopback port that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
