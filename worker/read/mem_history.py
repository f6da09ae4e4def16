"""The memory log of an attempt as it grows: read on from where the last look ended, and thinned.

A night is 28,800 lines, which nobody draws and no page can read anew for each look.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

from engine.contract.documents import MAX_LINE, byte_lines, opened
from worker.memory.trace import LOG, MemoryPoint, point_of

APART_S = 10.0
"""Between two readings that belong together; behind a longer time nobody knows what was between."""
MOST = 2400
"""Readings that are kept of a log, up to twice as many; beside them the ends of each stretch."""
_FOURS = 4


class MemoryHistory(NamedTuple):
    """What one log says."""

    n: int
    """Readings in it."""
    stretches: Sequence[Sequence[MemoryPoint]]
    """Those without a hole between them; of many readings the lowest and highest of some."""

    @property
    def points(self) -> list[MemoryPoint]:
        """All that is kept, as it stands in the log."""
        return [*chain.from_iterable(self.stretches)]


class _Follower:
    """One log, as far as it was read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._inode = -1
        self._offset = self._n = 0
        self._stretches: list[list[MemoryPoint]] = []
        self._kept, self._most = 0, 2 * MOST

    def look(self) -> MemoryHistory:
        """Read what is new; a file that is gone, or another one, is not what was read."""
        with self._lock:
            try:
                with opened(self._path) as file:
                    self._read(file)
            except OSError:
                self._forget()
            return MemoryHistory(self._n, tuple(map(tuple, self._stretches)))

    def _read(self, file: BinaryIO) -> None:
        found = os.fstat(file.fileno())
        if found.st_ino != self._inode or found.st_size < self._offset:
            self._forget()
            self._inode = found.st_ino
        file.seek(self._offset)
        for line in byte_lines(file):
            if not line.endswith(b"\n") and len(line) < MAX_LINE:
                return  # its writer is inside it
            self._offset += len(line)
            point = point_of(line)
            if point is not None:
                self._take(point)

    def _take(self, point: MemoryPoint) -> None:
        last = self._stretches[-1][-1].at if self._stretches else None
        if last is None or not 0 <= point.at - last <= APART_S:
            self._stretches.append([])
        self._stretches[-1].append(point)
        self._n += 1
        self._kept += 1
        if self._kept >= self._most:
            self._stretches = [_thinned(stretch) for stretch in self._stretches]
            self._kept = sum(map(len, self._stretches))
            self._most = self._kept + MOST


def _thinned(points: list[MemoryPoint]) -> list[MemoryPoint]:
    """About half of them: of each four the lowest and the highest, and the ends."""
    kept = {points[0], points[-1]}
    for start in range(0, len(points), _FOURS):
        four = points[start : start + _FOURS]
        kept.add(min(four, key=lambda point: point.free_gb))
        kept.add(max(four, key=lambda point: point.free_gb))
    return [point for point in points if point in kept]


@lru_cache(maxsize=32)
def _follower(log: Path) -> _Follower:
    return _Follower(log)


def memory_history(attempt: Path) -> MemoryHistory:
    """Of the attempt's directory; empty where no log is. Thread-safe."""
    return _follower(attempt / LOG).look()
