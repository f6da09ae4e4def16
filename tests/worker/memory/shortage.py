"""A machine whose free memory the test decides: a file of the kernel's form."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.contract.run_dir import RunDir
from worker.drain import DrainReport, drain
from worker.memory.sentry import DECISIONS
from worker.memory.trace import memory_points
from worker.settings import WorkerSettings

TOTAL_GB = 100.0
SCARCE_GB = 8.5
"""A step on the way down: a fall to the floor at one stroke would be a reason to kill."""
_KIB_PER_GB = 1e9 / 1024


def write_meminfo(path: Path, *, total_gb: float, free_gb: float) -> None:
    """In place, at a fixed length: whoever holds it open reads the old or the new."""
    lines = {"MemTotal": total_gb, "MemAvailable": free_gb, "SwapFree": 0.0}
    text = "".join(f"{name}: {gb * _KIB_PER_GB:20.0f} kB\n" for name, gb in lines.items())
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write(text.encode())


class Shortage:
    """Plenty of memory while a drain runs, until a condition holds."""

    def __init__(self, settings: WorkerSettings, path: Path) -> None:
        self.settings = settings.model_copy(update={"meminfo": path})
        self._path = path
        write_meminfo(path, total_gb=TOTAL_GB, free_gb=0.0)

    def drain(
        self, until: Callable[[], bool], *, then_gb: float, plenty_gb: float = 20.0
    ) -> DrainReport:
        """A drain with `plenty_gb` free until the condition holds, `then_gb` from then on."""
        write_meminfo(self._path, total_gb=TOTAL_GB, free_gb=plenty_gb)
        ended = threading.Event()
        weather = threading.Thread(target=self._turn, args=(ended, until, then_gb))
        weather.start()
        try:
            return drain(self.settings)
        finally:
            ended.set()
            weather.join()

    def decisions(self, run: RunDir, attempt: int) -> list[dict[str, Any]]:
        """What the sentry of an attempt wrote down."""
        lines = (run.attempt(attempt).root / DECISIONS).read_text().splitlines()
        return [json.loads(line) for line in lines]

    def _turn(self, ended: threading.Event, until: Callable[[], bool], then_gb: float) -> None:
        while not until():
            if ended.wait(0.01):
                return
        write_meminfo(self._path, total_gb=TOTAL_GB, free_gb=SCARCE_GB)
        while not self._has_settled():
            if ended.wait(0.01):
                return
        write_meminfo(self._path, total_gb=TOTAL_GB, free_gb=then_gb)

    def _has_settled(self) -> bool:
        """The sentry saw the step for a second, however late it looks: no fall is left to see."""
        newest = max(self.settings.runs_dir.glob("*/attempts/[0-9]*"))
        return [point.free_gb for point in memory_points(newest)].count(SCARCE_GB) >= 2
