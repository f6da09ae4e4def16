"""What an attempt did to the machine's memory, for result, lineage and report.

Sampled by the supervisor, kept in `attempts/NNN/mem_trace.json`, so that a result can be rebuilt
from files alone. Knows no limit.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, Field, ValidationError

from engine.contract.documents import byte_lines, opened, read_file, read_json_object
from engine.contract.known import real
from engine.contract.run_dir import RunDir, write_json

FILE = "mem_trace.json"
LOG = "memory.jsonl"
LOG_S = 1.0
"""Seconds between two lines of the log."""


class MemTrace(BaseModel):
    """One attempt, in GB (10⁹ bytes). Used = total - available, of the whole machine."""

    total_gb: float
    headroom_at_spawn_gb: float
    peak_used_gb: float
    min_headroom_gb: float
    own_peak_gb: float | None = None
    """The most that the engine's own processes held; None where nobody could read it."""
    abort_headroom_gb: float | None = None
    """Free memory at which the watchdog stopped it."""
    phase_used_gb: dict[str, float] = Field(default_factory=dict)
    """The most that was in use within each phase."""

    @classmethod
    def at_spawn(cls, total_gb: float, headroom_gb: float) -> Self:
        """Before the engine is there."""
        return cls(
            total_gb=total_gb,
            headroom_at_spawn_gb=headroom_gb,
            peak_used_gb=total_gb - headroom_gb,
            min_headroom_gb=headroom_gb,
        )

    def saw(self, headroom_gb: float, phase: str | None) -> None:
        """Account for one sample."""
        used = self.total_gb - headroom_gb
        self.peak_used_gb = max(self.peak_used_gb, used)
        self.min_headroom_gb = min(self.min_headroom_gb, headroom_gb)
        if phase:
            self.phase_used_gb[phase] = max(self.phase_used_gb.get(phase, 0.0), used)

    def write(self, attempt: Path) -> None:
        """Keep it with the attempt's evidence."""
        write_json(attempt / FILE, self.model_dump(mode="json"))


class MemoryPoint(NamedTuple):
    """One line of the log."""

    at: float
    """Unix seconds; of the reading, so that a frozen supervisor leaves no hole."""
    free_gb: float
    """The least since the line before."""
    phase: str | None


class MemoryLog:
    """Free memory once a second, in `attempts/NNN/memory.jsonl`."""

    def __init__(self, attempt: Path) -> None:
        self._path = attempt / LOG
        self._due = float("-inf")
        self._least = float("inf")

    def note(self, at: float, free_gb: float, phase: str | None) -> None:
        """Account for one reading; a disk without room costs the line, not the run."""
        self._least = min(self._least, free_gb)
        if at < self._due:
            return
        point = MemoryPoint(round(at, 2), self._least, phase)
        self._due, self._least = at + LOG_S, float("inf")
        with contextlib.suppress(OSError), self._path.open("a") as file:
            file.write(json.dumps(point) + "\n")


def memory_points(attempt: Path) -> Iterator[MemoryPoint]:
    """The log of an attempt, oldest first; what is no reading is left out."""
    with contextlib.suppress(OSError), opened(attempt / LOG) as file:
        yield from (point for point in map(point_of, byte_lines(file)) if point is not None)


def point_of(line: bytes) -> MemoryPoint | None:
    """One line of the log; None for what a power cut or a broken disk made of it."""
    try:
        at, free_gb, phase = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return None
    moment, free = real(at), real(free_gb)
    return None if moment is None or free is None else MemoryPoint(moment, free, phase)


def mem_trace_of(run: RunDir) -> dict[str, Any] | None:
    """All attempts of a run as one `mem_trace`; None when none was sampled.

    The start is that of the first attempt, an abort that of the last one that had one.
    """
    traces = [_read(path) for path in sorted((run.root / "attempts").glob(f"[0-9]*/{FILE}"))]
    known = [trace for trace in traces if trace is not None]
    if not known:
        return None
    aborts = [trace.abort_headroom_gb for trace in known if trace.abort_headroom_gb is not None]
    phases: dict[str, float] = {}
    for trace in known:
        for phase, used in trace.phase_used_gb.items():
            phases[phase] = max(used, phases.get(phase, 0.0))
    peak = max(trace.peak_used_gb for trace in known)
    least = min(trace.min_headroom_gb for trace in known)
    total = known[0].total_gb
    own = [trace.own_peak_gb for trace in known if trace.own_peak_gb is not None]
    return {
        "total_gb": round(total, 3),
        "headroom_at_spawn_gb": round(known[0].headroom_at_spawn_gb, 3),
        "peak_used_gb": round(peak, 3),
        "min_headroom_gb": round(least, 3),
        "own_peak_gb": round(max(own), 3) if own else None,
        "abort_headroom_gb": round(aborts[-1], 3) if aborts else None,
        "oom_deferred": len(aborts),
        "phase_used_gb": {phase: round(used, 3) for phase, used in sorted(phases.items())},
        "display": _display(peak, least, total, len(aborts)),
    }


def note_on_lineage(run: RunDir) -> None:
    """Put the trace beside the trials in `lineage.json`, where the engine wrote one."""
    trace = mem_trace_of(run)
    with contextlib.suppress(OSError, ValueError):  # no lineage, a torn one, or a full disk
        lineage = read_json_object(run.lineage)
        if trace is not None:
            write_json(run.lineage, lineage | {"mem_trace": trace})


def _display(peak: float, least: float, total: float, aborts: int) -> str:
    """`peak 9.1 of 25.2 GB, 16.1 GB left at least`."""
    text = f"peak {peak:.1f} of {total:.1f} GB, {least:.1f} GB left at least"
    return f"{text}, {aborts} times stopped for memory" if aborts else text


def _read(path: Path) -> MemTrace | None:
    try:
        return MemTrace.model_validate_json(read_file(path))
    except (OSError, ValidationError):
        return None
