"""The watchdog (memory guard): warns, and asks for a stop while a checkpoint is still possible.

Looks at what the machine has left (MemAvailable), never at one process alone: on unified memory
the accelerator takes from the same pool. One look is one `check()`; who calls it every `SAMPLE_S`
keeps the time. Knows no process and stops nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from worker.settings import WorkerSettings

SAMPLE_S = 0.5
HOLD = 4
"""Samples in a row under the floor: a spike of less than 2 seconds is no reason to stop."""

SMALL_BOX_GB = 64.0
"""Under this total the limits shrink with the box: 4 GB are nothing there and a lot on 8 GB."""
_SMALL_FLOOR, _SMALL_WARN = 0.08, 0.16

_MEMINFO = Path("/proc/meminfo")
_KIB_PER_GB = 1e9 / 1024

Reader = Callable[[], float | None]
"""Free memory in GB (10⁹ bytes); None when it cannot be told."""


class Level(StrEnum):
    """What one look found."""

    OK = "ok"
    WARN = "warn"
    TRIP = "trip"
    """Under the floor for `HOLD` samples: stop the run."""


class WatchdogDecision(NamedTuple):
    """One look."""

    level: Level
    headroom_gb: float | None


class Limits(NamedTuple):
    """In GB."""

    warn_gb: float
    floor_gb: float


class MemoryWatchdog:
    """Counts breaches of the floor; anything else in between starts the count again."""

    def __init__(
        self, reader: Reader, *, warn_gb: float, floor_gb: float, hold: int = HOLD
    ) -> None:
        self._reader = reader
        self.warn_gb = warn_gb
        self.floor_gb = floor_gb
        self._hold = hold
        self._breaches = 0

    def check(self) -> WatchdogDecision:
        """One sample. A missing one never trips."""
        headroom = self._reader()
        breach = headroom is not None and headroom < self.floor_gb
        self._breaches = self._breaches + 1 if breach else 0
        if self._breaches >= self._hold:
            return WatchdogDecision(Level.TRIP, headroom)
        if headroom is not None and headroom < self.warn_gb:
            return WatchdogDecision(Level.WARN, headroom)
        return WatchdogDecision(Level.OK, headroom)


def limits(settings: WorkerSettings, total: float) -> Limits:
    """The limits in force on a box with `total` GB.

    >>> limits(WorkerSettings(), total=25.0)
    Limits(warn_gb=4.0, floor_gb=2.0)
    """
    warn, floor = settings.oom_warn_gb, settings.oom_floor_gb
    if total < SMALL_BOX_GB:
        warn, floor = min(warn, _SMALL_WARN * total), min(floor, _SMALL_FLOOR * total)
    return Limits(warn, floor)


def available_gb() -> float | None:
    """What the machine could still give without swapping."""
    return _meminfo("MemAvailable")


def total_gb() -> float | None:
    """All memory of the machine."""
    return _meminfo("MemTotal")


def _meminfo(name: str) -> float | None:
    try:
        lines = _MEMINFO.read_text("ascii").splitlines()
        value = next(line for line in lines if line.startswith(f"{name}:"))
        return int(value.split()[1]) / _KIB_PER_GB
    except (OSError, StopIteration, ValueError, IndexError):
        return None
