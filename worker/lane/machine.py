"""The machine as it stands: memory against its floors, and what the watchdog decided.

Reads only; knows no job but by its run directory.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from engine.contract.run_dir import RunDir
from worker.lane.mem_trace import MemoryPoint, memory_points
from worker.lane.readings import DeviceMemory, HostMemory, Pressure, Reading, read_all
from worker.lane.sentry import DECISIONS, device_of
from worker.lane.watchdog import Limits, limits
from worker.settings import WorkerSettings


class Machine(NamedTuple):
    """Memory now, in GB of 10⁹ bytes."""

    total_gb: float | None
    reading: Reading
    limits: Limits


class AttemptMemory(NamedTuple):
    """What one attempt did to the memory."""

    attempt: int
    points: Sequence[MemoryPoint]
    decisions: Sequence[dict[str, Any]]
    """As the sentry wrote them: at, action, rule, free_gb, phase, step, …"""


def machine_now(settings: WorkerSettings) -> Machine:
    """One look at everything."""
    host = HostMemory(settings.meminfo, settings.memory_total_gb)
    total = host.total_gb()
    device = DeviceMemory(device_of(settings.lane))
    return Machine(total, read_all(host, device, Pressure()), limits(settings, total or 0.0))


def attempt_memory(run: RunDir, attempt: int) -> AttemptMemory:
    """The log and the decisions of one attempt; empty where none were written."""
    folder = run.attempt(attempt).root
    decisions = []
    with contextlib.suppress(OSError), (folder / DECISIONS).open() as file:
        for line in file:
            with contextlib.suppress(ValueError):  # torn by a power cut
                decisions.append(json.loads(line))
    return AttemptMemory(attempt, list(memory_points(folder)), decisions)
