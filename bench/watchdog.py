"""The memory watchdog: from crossing to SIGKILL, the fastest fall, and page-cache churn.

`python bench/watchdog.py [--runs N] [--churn-minutes M] [--json FILE]`. Falls and churn happen in
a memory control group of their own, so that the machine is never in danger; the kernel's own
high-water mark tells how low the guarded pool went. Needs a writable control group (root).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.contract.run_dir import AttemptDir
from worker.memory.guard import MemoryGuard
from worker.memory.readings import HostMemory
from worker.memory.sentry import DECISIONS
from worker.settings import WorkerSettings

POOL_GB = 4.0
WARN_GB, FLOOR_GB = 0.64, 0.32
"""16 % and 8 % of the pool, as on any small box; the hard floor is half the floor."""
HARD_GB = FLOOR_GB / 2

IDLE = "import time; print('up', flush=True); time.sleep(600)"
FALL = """
import ctypes, mmap, os, threading
gate = threading.Barrier(os.cpu_count() + 1)
def fill():
    area = mmap.mmap(-1, 8 << 30)
    area.madvise(mmap.MADV_HUGEPAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    gate.wait()
    ctypes.memset(address, 1, 8 << 30)
for _ in range(os.cpu_count()):
    threading.Thread(target=fill).start()
print('up', flush=True)
gate.wait()
"""
CHURN = """
import os, sys
path, block = sys.argv[1], b"x" * (4 << 20)
print('up', flush=True)
while True:
    with open(path, "wb", buffering=0) as file:
        for _ in range(1500):
            file.write(block)
    for _ in range(2):
        with open(path, "rb", buffering=0) as file:
            while file.read(4 << 20):
                pass
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a table; 1 when a bound was missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--churn-minutes", type=float, default=60.0)
    parser.add_argument("--json", type=Path, help="write the figures to FILE")
    options = parser.parse_args(argv)
    figures = crossings(options.runs) | falls(options.runs) | churn(options.churn_minutes)
    for name, (value, unit) in figures.items():
        print(f"{name:60} {value:10.3f} {unit}".rstrip())
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    if options.json:
        options.json.write_text(json.dumps({n: v for n, (v, _) in figures.items()}, indent=1))
    return 0


def crossings(runs: int) -> dict[str, tuple[float, str]]:
    """A reading under the hard floor → the engine is dead, from near; on a file, so that the
    moment is known."""
    took, own = [], []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            meminfo = Path(folder, "meminfo")
            _write_meminfo(meminfo, 5.0)
            guarded = _Guarded(Path(folder), IDLE, meminfo=meminfo)
            time.sleep(0.3)  # it looks every 50 ms now
            began = time.monotonic()
            _write_meminfo(meminfo, 1.0)
            guarded.engine.wait()
            took.append((time.monotonic() - began) * 1000)
            (kill,) = (d for d in guarded.close() if d["action"] == "kill")
            own.append(kill["took_ms"])
    return {
        f"crossing → engine dead, median of {runs}": (statistics.median(took), "ms"),
        "crossing → engine dead, p99": (_quantile(took, 0.99), "ms"),
        "reading → SIGKILL sent, p99": (_quantile(own, 0.99), "ms"),
    }


def falls(runs: int) -> dict[str, tuple[float, str]]:
    """All cores fault in memory as fast as they can, in a group of POOL_GB."""
    lows, speeds = [], []
    with _Group(int(POOL_GB * 1e9)) as group:
        for _ in range(runs):
            with tempfile.TemporaryDirectory() as folder:
                group.forget_peak()
                guarded = _Guarded(Path(folder), FALL)
                guarded.engine.wait()
                (decision,) = (d for d in guarded.close() if d["action"] == "kill")
                lows.append(POOL_GB - group.peak_gb())
                speeds.append(decision["fall_gb_s"])
    through = sum(low < HARD_GB for low in lows)
    return {
        f"falls that passed the hard floor ({HARD_GB:.2f} GB), of {runs}": (through, ""),
        "least memory that was left, worst": (min(lows), "GB"),
        "least memory that was left, median": (statistics.median(lows), "GB"),
        "fall as measured at the kill, median": (statistics.median(speeds), "GB/s"),
        "fall as measured at the kill, fastest": (max(speeds), "GB/s"),
    }


def churn(minutes: float) -> dict[str, tuple[float, str]]:
    """A file larger than the group is written and read over and over."""
    with tempfile.TemporaryDirectory() as folder, _Group(int(POOL_GB * 1e9)):
        guarded = _Guarded(Path(folder), CHURN, str(Path(folder, "file")))
        deadline = time.monotonic() + minutes * 60
        while time.monotonic() < deadline and guarded.engine.poll() is None:
            guarded.guard.look("churn")
            time.sleep(0.1)
        killed = guarded.engine.poll() is not None
        least = guarded.least_gb
        guarded.engine.kill()
        guarded.engine.wait()
        decisions = [d for d in guarded.close() if d["action"] in ("stop", "kill")]
    return {
        f"stops and kills in {minutes:g} minutes of page-cache churn": (
            float(len(decisions) + killed),
            "",
        ),
        "least memory read meanwhile": (least, "GB"),
    }


class _Guarded:
    """A sentry and an engine, as a supervisor starts them."""

    def __init__(self, folder: Path, program: str, *arguments: str, meminfo: Path | None = None):
        self._attempt = AttemptDir(folder / "001")
        self._attempt.root.mkdir()
        limits: dict[str, Any] = {"oom_warn_gb": WARN_GB, "oom_floor_gb": FLOOR_GB}
        if meminfo:
            limits = {"oom_warn_gb": 8.0, "oom_floor_gb": 4.0, "meminfo": meminfo}
        settings = WorkerSettings(data_dir=folder, lane="cpu", **limits)
        self.guard = MemoryGuard(settings, self._attempt)
        self.engine = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            start_new_session=True,
            stdout=subprocess.PIPE,
        )
        self.guard.guard(self.engine.pid)
        assert self.engine.stdout is not None
        self.engine.stdout.readline()

    @property
    def least_gb(self) -> float:
        assert self.guard._trace is not None  # noqa: SLF001 - what the sentry told
        return self.guard._trace.min_headroom_gb  # noqa: SLF001 - as above

    def close(self) -> list[dict[str, Any]]:
        """The decisions, when the engine is gone."""
        self.guard.close()
        assert self.engine.stdout is not None
        self.engine.stdout.close()
        path = self._attempt.root / DECISIONS
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]


class _Group:
    """A memory control group (version 1 or 2) with this process in it, for as long as it lasts."""

    def __init__(self, limit: int) -> None:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = {name: path for _, name, path in (line.split(":", 2) for line in lines)}
        self._first = "memory" in own
        root = Path("/sys/fs/cgroup/memory") if self._first else Path("/sys/fs/cgroup")
        self._outer = root / own["memory" if self._first else ""].lstrip("/")
        self._inner = self._outer / f"nightlane-bench-{os.getpid()}"
        self._inner.mkdir()
        name = "memory.limit_in_bytes" if self._first else "memory.max"
        (self._inner / name).write_text(str(limit))

    def __enter__(self) -> _Group:
        (self._inner / "cgroup.procs").write_text(str(os.getpid()))
        assert HostMemory().group_gb() is not None, "this process is not in its group"
        return self

    def __exit__(self, *_: object) -> None:
        (self._outer / "cgroup.procs").write_text(str(os.getpid()))
        self._inner.rmdir()

    def forget_peak(self) -> None:
        name = "memory.max_usage_in_bytes" if self._first else "memory.peak"
        (self._inner / name).write_text("0")

    def peak_gb(self) -> float:
        name = "memory.max_usage_in_bytes" if self._first else "memory.peak"
        return int((self._inner / name).read_text()) / 1e9


def _write_meminfo(path: Path, free_gb: float) -> None:
    kib = 1e9 / 1024
    text = f"MemTotal: {100 * kib:20.0f} kB\nMemAvailable: {free_gb * kib:20.0f} kB\n"
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write(text.encode())


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


if __name__ == "__main__":
    sys.exit(main())
