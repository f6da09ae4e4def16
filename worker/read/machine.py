"""The machine as it stands: memory against its floors, and what the watchdog decided.

Reads only; knows no job but by its run directory.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.contract.documents import byte_lines, opened
from engine.contract.known import real, whole
from engine.contract.run_dir import RunDir
from worker.memory.readings import DeviceMemory, HostMemory, Pressure, Reading, read_all
from worker.memory.rule import Limits, limits
from worker.memory.sentry import DECISIONS, device_of
from worker.read.mem_history import MemoryHistory, memory_history
from worker.settings import WorkerSettings


class Machine(NamedTuple):
    """Memory now, in GB of 10⁹ bytes."""

    total_gb: float | None
    reading: Reading
    limits: Limits


class Decision(NamedTuple):
    """What the sentry decided at one of its looks."""

    at: float
    """Unix seconds."""
    action: str
    rule: str
    free_gb: float | None
    fall_gb_s: float | None
    phase: str | None
    step: int | None


class AttemptMemory(NamedTuple):
    """What one attempt did to the memory."""

    attempt: int
    history: MemoryHistory
    decisions: Sequence[Decision]


def machine_now(settings: WorkerSettings) -> Machine:
    """One look at everything."""
    host = HostMemory(settings.meminfo, settings.memory_total_gb)
    total = host.total_gb()
    device = DeviceMemory(device_of(settings.lane))
    return Machine(total, read_all(host, device, Pressure()), limits(settings, total or 0.0))


def attempt_memory(run: RunDir, attempt: int) -> AttemptMemory:
    """The log and the decisions of one attempt; empty where none were written."""
    folder = run.attempt(attempt).root
    return AttemptMemory(attempt, memory_history(folder), list(_decisions(folder / DECISIONS)))


def _decisions(path: Path) -> Iterator[Decision]:
    """As the sentry wrote them; what a power cut or a broken disk made of a line is left out."""
    with contextlib.suppress(OSError), opened(path) as file:
        for line in byte_lines(file):
            with contextlib.suppress(ValueError, RecursionError):
                entry = json.loads(line)
                found = _decision(entry) if isinstance(entry, Mapping) else None
                if found is not None:
                    yield found


def _decision(entry: Mapping[str, Any]) -> Decision | None:
    at, step, phase = real(entry.get("at")), entry.get("step"), entry.get("phase")
    if at is None or not entry.get("action") or not entry.get("rule"):
        return None
    return Decision(
        at,
        str(entry["action"]),
        str(entry["rule"]),
        real(entry.get("free_gb")),
        real(entry.get("fall_gb_s")),
        phase if isinstance(phase, str) else None,
        whole(step),
    )
