"""How much memory this process uses and the machine has left, in GB (10⁹ bytes).

Knows no limit; who watches the machine decides elsewhere.
"""

from __future__ import annotations

import re
from pathlib import Path

import psutil

_GB = 1e9
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""Sets VmHWM to the present size (proc(5), since Linux 4.0)."""


def rss_gb() -> float:
    """Resident memory of this process now."""
    return float(psutil.Process().memory_info().rss) / _GB


def available_gb() -> float:
    """What the machine could still give without swapping."""
    return float(psutil.virtual_memory().available) / _GB


class PeakMeter:
    """The most this process ever held, over all and in each phase."""

    def __init__(self) -> None:
        self.by_phase: dict[str, float] = {}
        self._peak = _high_water()

    @property
    def peak_gb(self) -> float:
        return max(self._peak, _high_water())

    def begin(self) -> None:
        """A phase begins: from here on the high-water mark is its own."""
        self._peak = self.peak_gb
        try:
            _CLEAR.write_text(_RESET_PEAK)
        except OSError:
            # Where the mark cannot be set back, phases share the highest one so far.
            return

    def end(self, phase: str) -> None:
        """The phase is over; the same phase of another step may have held more."""
        self.by_phase[phase] = max(self.by_phase.get(phase, 0.0), _high_water())

    def trace(self) -> dict[str, object]:
        """The engine's share of `mem_trace`."""
        return {
            "peak_used_gb": round(self.peak_gb, 3),
            "phase_used_gb": {phase: round(gb, 3) for phase, gb in self.by_phase.items()},
        }


def _high_water() -> float:
    found = re.search(r"^VmHWM:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    return int(found.group(1)) * 1024 / _GB if found else rss_gb()
