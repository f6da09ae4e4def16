"""Readings: how much memory is left, as the kernel, the control group and the accelerator say.

Standard library alone, files kept open: read many times a second beside a machine that may be
short of memory. Values are GB of 10⁹ bytes; None where nothing answers. Knows no limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

MEMINFO = Path("/proc/meminfo")
_GB = 1e9
_KIB_PER_GB = 1e9 / 1024
_PAGE = 16384


class Reading(NamedTuple):
    """One look at everything."""

    free_gb: float | None
    """What may still be taken: the least of the two below."""
    available_gb: float | None
    """MemAvailable, less what a configured total leaves to others."""
    group_gb: float | None
    """What the tightest memory control group still allows."""
    device_gb: float | None
    """Free memory of a discrete accelerator; on unified memory there is no such number."""
    swap_free_gb: float | None
    pressure: float | None
    """Share of the last 10 seconds in which some task waited for memory, 0..1."""


class HostMemory:
    """Free and total memory of the host, as far as this process and its children may use it."""

    def __init__(
        self,
        meminfo: Path = MEMINFO,
        total_gb: float | None = None,
        groups: Path = Path("/sys/fs/cgroup"),
        own_groups: Path = Path("/proc/self/cgroup"),
    ) -> None:
        """`total_gb`: act as if the box had no more than this."""
        self._meminfo = _File(meminfo)
        self._groups = [_Group(folder) for folder in _group_folders(groups, own_groups)]
        total = self._field(b"MemTotal:")
        self._withheld = max(0.0, (total or 0.0) - total_gb) if total_gb is not None else 0.0

    def total_gb(self) -> float | None:
        """All there is to share."""
        total = self._field(b"MemTotal:")
        limits = [limit for group in self._groups if (limit := group.limit_gb()) is not None]
        return None if total is None else min([total - self._withheld, *limits])

    def free_gb(self) -> float | None:
        """What may still be taken without swapping and without reaching a group's limit."""
        return _least(self.available_gb(), self.group_gb())

    def available_gb(self) -> float | None:
        available = self._field(b"MemAvailable:")
        return None if available is None else available - self._withheld

    def group_gb(self) -> float | None:
        return _least(*(group.free_gb() for group in self._groups))

    def swap_free_gb(self) -> float | None:
        return self._field(b"SwapFree:")

    def _field(self, name: bytes) -> float | None:
        text = self._meminfo.read()
        at = text.find(name)
        if at < 0:
            return None
        with suppress(ValueError, IndexError):
            return int(text[at + len(name) :].split(None, 1)[0]) / _KIB_PER_GB
        return None


class DeviceMemory:
    """Free memory of one discrete accelerator through NVML; silent where there is none."""

    def __init__(self, index: int | None) -> None:
        self._handle: Any = None
        if index is None:
            return
        with suppress(Exception):  # no library, no driver, no device: there is nothing to read
            import pynvml  # noqa: PLC0415 - only where a device is asked for

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            self._read = pynvml.nvmlDeviceGetMemoryInfo

    def free_gb(self) -> float | None:
        """None on unified memory, where NVML does not support the question."""
        if self._handle is None:
            return None
        with suppress(Exception):  # a driver that stops answering must not stop the guard
            return float(self._read(self._handle).free) / _GB
        return None


class Pressure:
    """Pressure stall information of the kernel."""

    def __init__(self, path: Path = Path("/proc/pressure/memory")) -> None:
        self._file = _File(path)

    def some(self) -> float | None:
        """Share of the last 10 seconds in which some task waited for memory."""
        text = self._file.read()
        at = text.find(b"avg10=")
        with suppress(ValueError, IndexError):
            return float(text[at + 6 :].split(None, 1)[0]) / 100 if at >= 0 else None
        return None


def read_all(host: HostMemory, device: DeviceMemory, pressure: Pressure) -> Reading:
    """Everything at once, for the record."""
    available, group = host.available_gb(), host.group_gb()
    return Reading(
        free_gb=_least(available, group),
        available_gb=available,
        group_gb=group,
        device_gb=device.free_gb(),
        swap_free_gb=host.swap_free_gb(),
        pressure=pressure.some(),
    )


class _Group:
    """One memory control group, of version 1 or 2. Its page cache counts as free, as it does in
    MemAvailable: under pressure the kernel drops or writes it before it kills."""

    def __init__(self, folder: Path) -> None:
        second = (folder / "memory.current").exists()
        names = ("memory.current", "memory.max") if second else _V1_FILES
        self._used, self._limit, self._stat = (_File(folder / n) for n in (*names, "memory.stat"))
        prefix = b"\n" if second else b"\ntotal_"
        self._cache = prefix + b"inactive_file ", prefix + b"active_file "

    def limit_gb(self) -> float | None:
        """None for a group without a limit."""
        text = self._limit.read().strip()
        if not text.isdigit() or int(text) >= _NO_LIMIT:
            return None
        return int(text) / _GB

    def free_gb(self) -> float | None:
        limit = self.limit_gb()
        used = self._used.read().strip()
        if limit is None or not used.isdigit():
            return None
        stat = b"\n" + self._stat.read()
        cache = sum(
            int(stat[at + len(name) :].split(None, 1)[0])
            for name in self._cache
            if (at := stat.find(name)) >= 0
        )
        return limit - max(0, int(used) - cache) / _GB


_V1_FILES = ("memory.usage_in_bytes", "memory.limit_in_bytes")
_NO_LIMIT = 1 << 60


def _group_folders(root: Path, own: Path) -> Iterator[Path]:
    """The folder of this process's memory group and of each group around it."""
    for line in _File(own).read().decode(errors="replace").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            mount, marker = root / "memory", "memory.limit_in_bytes"
        elif not controllers:
            mount, marker = root, "memory.max"
        else:
            continue
        folder = mount / path.lstrip("/")
        if not folder.is_dir():  # a group namespace: its own group is the mount itself
            folder = mount
        for around in (folder, *folder.parents):
            if (around / marker).exists():
                yield around
            if around == mount:
                break


class _File:
    """A small file of the kernel, kept open, read from its beginning each time."""

    def __init__(self, path: Path) -> None:
        self._handle = -1
        with suppress(OSError):
            self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)

    def read(self) -> bytes:
        """Nothing where there is no file, or it does not answer."""
        with suppress(OSError):
            return os.pread(self._handle, _PAGE, 0)
        return b""


def _least(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return min(known, default=None)
