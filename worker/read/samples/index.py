"""The shelf: where each row of a rollout file begins, and the few facts that filters ask for.

A file is read through once, a bounded stretch at a look, and its rows are sought by byte offset
from then on. A file that was replaced is read anew, one that grew is read on; a torn last line is
left for the next look. Keeps a bounded number of rows in memory. Knows no question about them.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from engine.contract.documents import opened
from worker.read.samples.rows import NOT_LEARNT, Outcome, Sample, outcome_of, read_sample

BYTES_A_LOOK = 8 * 1024 * 1024
"""Read before an answer is given: less than a second."""
MOST_LINE = 16 * 1024 * 1024
"""A longer line is no completion; it counts as damaged."""
MOST_ROWS = 80_000
"""Kept over all files; the file in use always is."""


class Fact(NamedTuple):
    """Where a row stands, and what it came to."""

    offset: int
    size: int
    outcome: Outcome


class Stamp(NamedTuple):
    """Tells one content of a path from another."""

    inode: int
    size: int
    mtime_ns: int


class FileIndex:
    """The rows of one file as far as it was read."""

    def __init__(self, path: Path, split: str, step: int) -> None:
        self.path, self.split, self.step = path, split, step
        self.facts: list[Fact] = []
        self.groups: dict[str, list[int]] = {}
        """Places of each prompt's rows."""
        self.damaged = 0
        """Lines that hold no completion."""
        self.size = 0
        """Bytes of the file."""
        self.read_to = 0
        self._stamp: Stamp | None = None
        self._lock = threading.Lock()

    @property
    def whole(self) -> bool:
        """Nothing but a torn last line is left."""
        return self.read_to >= self.size

    def look(self, most_bytes: int) -> int:
        """Bring the index up to date, reading so many bytes at most; how many it read."""
        with self._lock:
            try:
                status = self.path.stat()
                stamp = Stamp(status.st_ino, status.st_size, status.st_mtime_ns)
                if stamp == self._stamp and self.whole:
                    return 0
                self._accept(stamp)
                return self._read_on(most_bytes)
            except OSError:
                return 0

    def _accept(self, stamp: Stamp) -> None:
        before = self._stamp
        grown = before and stamp.inode == before.inode and stamp.size >= before.size
        if not grown or (stamp != before and stamp.size == self.size):
            self.facts, self.groups, self.damaged, self.read_to = [], {}, 0, 0
        self._stamp, self.size = stamp, stamp.size

    def _read_on(self, most_bytes: int) -> int:
        began = self.read_to
        with opened(self.path) as stream:
            stream.seek(began)
            while self.read_to - began < most_bytes:
                line = stream.readline(MOST_LINE)
                if not line.endswith(b"\n"):
                    if len(line) < MOST_LINE:
                        self.size = min(self.size, self.read_to)  # torn: wait for the rest
                        break
                    self._skip(stream, len(line))
                    continue
                self._take(line)
                self.read_to += len(line)
        return self.read_to - began

    def _skip(self, stream: Any, read: int) -> None:
        """Pass over the rest of a line that is too long to be one."""
        while chunk := stream.readline(MOST_LINE):
            read += len(chunk)
            if chunk.endswith(b"\n"):
                break
        self.damaged += 1
        self.read_to += read

    def _take(self, line: bytes) -> None:
        row = _loaded(line)
        if row is None:
            self.damaged += bool(line.strip())
            return
        place = len(self.facts)
        outcome = outcome_of(row, place)
        self.facts.append(Fact(self.read_to, len(line), outcome))
        self.groups.setdefault(outcome.id, []).append(place)

    def tied(self, name: str) -> bool:
        """Whether a prompt has several completions, and the rewards of those that were judged rank
        nothing: they are equal, or fewer than two.
        """
        places = self.groups.get(name, ())
        outcomes = [self.facts[place].outcome for place in places]
        judged = {one.reward for one in outcomes if one.reason not in NOT_LEARNT}
        return len(places) > 1 and len(judged) < 2

    def sample(self, place: int) -> Sample | None:
        """One row in full; None when the file was taken away meanwhile."""
        row = self.row(place)
        return None if row is None else self.as_sample(place, row)

    def row(self, place: int) -> Mapping[str, Any] | None:
        """One row as it was written."""
        return next((row for _, row in self.rows([place])), None)

    def rows(self, places: Iterable[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Rows as they were written, by one open file; ends early when it was taken away."""
        try:
            with opened(self.path) as stream:
                for place in places:
                    fact = self.facts[place]
                    stream.seek(fact.offset)
                    row = _loaded(stream.read(fact.size))
                    if row is not None:
                        yield place, row
        except OSError:
            return

    def as_sample(self, place: int, row: Mapping[str, Any]) -> Sample:
        """A row with what its file says of its group."""
        found = read_sample(row, split=self.split, step=self.step, place=place)
        name = self.facts[place].outcome.id
        places = self.groups.get(name, ())
        found.tied, found.group = self.tied(name), len(places) or 1
        found.group_right = sum(self.facts[one].outcome.right is True for one in places)
        return found


class Shelf:
    """The indexes of the files looked at lately."""

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self._most_rows = most_rows
        self._indexes: OrderedDict[Path, FileIndex] = OrderedDict()
        self._lock = threading.Lock()

    def index(self, path: Path, split: str, step: int) -> FileIndex:
        """The index of a file, not brought up to date yet."""
        with self._lock:
            found = self._indexes.pop(path, None) or FileIndex(path, split, step)
            self._indexes[path] = found
            rows = sum(len(one.facts) for one in self._indexes.values())
            while rows > self._most_rows and len(self._indexes) > 1:
                _, dropped = self._indexes.popitem(last=False)
                rows -= len(dropped.facts)
            return found


SHELF = Shelf()
"""One a process: what one page has read, the next one need not."""


def _loaded(line: bytes) -> Mapping[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None
