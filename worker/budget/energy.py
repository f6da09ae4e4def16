"""Energy (metering): what processor and accelerator have used, where a counter can be read.

Processor packages through the kernel's powercap files (RAPL), which only root may read on many
boxes; one accelerator through NVML. Where nothing answers there is no number. The rest of the
machine (memory, fans, power supply) is in no counter.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

POWERCAP = Path("/sys/class/powercap")
_PACKAGE = re.compile(r"intel-rapl:\d+")
"""A package; its parts (cores, graphics) are below it and are counted in it."""


class EnergyCounter:
    """Adds up from its construction on."""

    def __init__(self, device: int | None = None, powercap: Path = POWERCAP) -> None:
        """`device`: the accelerator's index, None without one."""
        self._packages = [
            package for folder in _packages(powercap) if (package := _Package(folder)).readable
        ]
        self._device = _Device(device)

    def joules(self) -> float | None:
        """Used so far by all that can be read; None when nothing can."""
        parts = [package.joules() for package in self._packages]
        if self._device.readable:
            parts.append(self._device.joules())
        return sum(parts) if parts else None


class _Package:
    """One counter in microjoules, which begins again at its range."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "energy_uj"
        self._range = _number(folder / "max_energy_range_uj") or 0
        self._last = _number(self._file)
        self._sum = 0
        self.readable = self._last is not None

    def joules(self) -> float:
        now = _number(self._file)
        if now is not None and self._last is not None:
            step = now - self._last
            self._sum += step if step >= 0 else step + self._range
            self._last = now
        return self._sum / 1e6


class _Device:
    """One accelerator's counter in millijoules, since the driver was loaded."""

    def __init__(self, index: int | None) -> None:
        self._handle: Any = None
        self.readable = False
        if index is None:
            return
        with suppress(Exception):  # no library, no driver, no such counter: nothing to read
            import pynvml  # noqa: PLC0415 - only where a device is asked for

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            self._read = pynvml.nvmlDeviceGetTotalEnergyConsumption
            self._first = self._last = float(self._read(self._handle))
            self.readable = True

    def joules(self) -> float:
        with suppress(Exception):  # a driver that stops answering ends no run
            self._last = float(self._read(self._handle))
        return (self._last - self._first) / 1e3


def _packages(powercap: Path) -> list[Path]:
    try:
        return sorted(path for path in powercap.iterdir() if _PACKAGE.fullmatch(path.name))
    except OSError:
        return []


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None
