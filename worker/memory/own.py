"""What an engine itself holds: its group's share of the host's memory, strangers left out.

Pages that several processes share are counted once (PSS, proc(5)); reading them costs the kernel a
walk over every page, so it is done seldom, and the processes' own high-water marks in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

WALK_S = 10.0
"""Seconds between two walks."""
MARK_S = 1.0
"""Seconds between two looks at the high-water marks."""
_PROC = Path("/proc")
_KIB = 1024 / 1e9


class OwnMemory:
    """The most that a group led by one process has held, in GB of 10⁹ bytes."""

    def __init__(self, leader: int, proc: Path = _PROC) -> None:
        self._leader = leader
        self._proc = proc
        self._walk_due = self._mark_due = float("-inf")
        self.peak_gb: float | None = None

    def look(self, now: float) -> float | None:
        """The peak so far; None before anything could be read."""
        if now >= self._mark_due:
            self._mark_due = now + MARK_S
            members = list(self._members())
            found = [max((self._kib(pid, "status", "VmHWM") for pid in members), default=0)]
            if now >= self._walk_due:
                self._walk_due = now + WALK_S
                found.append(sum(self._kib(pid, "smaps_rollup", "Pss") for pid in members))
            if max(found):
                self.peak_gb = max(self.peak_gb or 0.0, max(found) * _KIB)
        return self.peak_gb

    def _members(self) -> Iterator[int]:
        """Processes of the session that the engine leads: its server and its workers too."""
        for entry in self._proc.iterdir():
            if entry.name.isdecimal():
                with suppress(OSError, ValueError, IndexError):
                    # The command stands in parentheses and may hold anything, parentheses too.
                    fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                    if int(fields[3]) == self._leader:
                        yield int(entry.name)

    def _kib(self, pid: int, file: str, field: str) -> int:
        """0 for a process that is gone, or not ours to look at."""
        with suppress(OSError):
            text = (self._proc / str(pid) / file).read_text()
            found = re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)
            return int(found.group(1)) if found else 0
        return 0
