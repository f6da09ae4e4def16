"""Memory beside one running attempt: sample, keep the trace, write the sentinel at the floor.

Called in the supervisor's loop; the watchdog decides, this writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.contract.run_dir import Abort, AbortReason, AttemptDir
from worker.lane.mem_trace import MemTrace
from worker.lane.watchdog import (
    SAMPLE_S,
    Level,
    MemoryWatchdog,
    Reader,
    available_gb,
    limits,
    total_gb,
)
from worker.settings import WorkerSettings

KEEP_S = 5.0
"""Seconds between two writes of the trace."""


class MemoryGuard:
    """The watchdog and the trace of one attempt."""

    def __init__(
        self,
        settings: WorkerSettings,
        attempt: AttemptDir,
        reader: Reader = available_gb,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._attempt = attempt
        self._clock = clock
        self._due = self._keep_due = clock()
        headroom, total = reader(), total_gb()
        warn, floor = limits(settings, total or 0.0)
        self._watchdog = MemoryWatchdog(reader, warn_gb=warn, floor_gb=floor)
        self._trace = (
            None if total is None or headroom is None else MemTrace.at_spawn(total, headroom)
        )

    def look(self, phase: str | None) -> None:
        """One sample when it is due."""
        now = self._clock()
        if now < self._due:
            return
        self._due = now + SAMPLE_S
        decision = self._watchdog.check()
        if decision.level is Level.TRIP:
            self._stop(decision.headroom_gb)
        if self._trace is not None and decision.headroom_gb is not None:
            self._trace.saw(decision.headroom_gb, phase)
        if now >= self._keep_due:
            self._keep_due = now + KEEP_S
            self.keep()

    def keep(self) -> None:
        """Write the trace to the attempt's directory."""
        if self._trace is not None:
            self._trace.write(self._attempt.root)

    def _stop(self, headroom_gb: float | None) -> None:
        request = Abort(
            reason=AbortReason.MEMORY,
            headroom_gb=headroom_gb,
            floor_gb=self._watchdog.floor_gb,
            tripped_at=time.time(),
        )
        if self._attempt.request_abort(request) and self._trace is not None:
            self._trace.abort_headroom_gb = headroom_gb
