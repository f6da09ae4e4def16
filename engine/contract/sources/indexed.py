"""Rows of a large JSONL source that stay in their files: only the id and the place of each are
kept, and it is read again when it is asked for.
"""

from __future__ import annotations

import functools
import os
import zlib
from array import array
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from engine.contract.documents import opened, why
from engine.contract.errors import RLLoopError
from engine.contract.sources.bad_rows import BadRowError
from engine.contract.sources.files import json_lines
from engine.contract.sources.files.reading import File
from engine.contract.sources.rows import Row, Rows, row_of

LARGE = 64 * 2**20
"""Bytes of a source from which its rows stay in their files."""
_KEPT = 16
"""Rows read last that are kept: one is asked for its prompt, its answer and its columns in turn."""


def is_indexed(files: Sequence[Path]) -> bool:
    """Whether rows of these files are read one by one: a large source of lines, none packed. Not
    where a file is gone: whoever reads it says why.
    """
    try:
        large = sum(path.stat().st_size for path in files) > LARGE
        return large and all(File(path).has_lines for path in files)
    except OSError:
        return False


class Indexed(NamedTuple):
    """The rows of a source, and which of them are used: parts of equal length, in the order of the
    config.
    """

    rows: IndexedRows
    ids: Sequence[str]
    numbers: Sequence[int]


def indexed(rows: Rows) -> Indexed:
    """Reads all rows, once or more. Raises RLLoopError as `rows` does."""
    before = _states(rows.files)
    names: dict[str, None] = {}
    ids, numbers, ranks = list[str](), array("Q"), array("Q")
    for rank, row in rows.ranked():
        names.update(dict.fromkeys(row.columns))
        ids.append(row.id)
        numbers.append(row.number)
        ranks.append(rank)
    if rows.config.shuffle is not None:
        order = sorted(range(len(ranks)), key=ranks.__getitem__)
        ids, numbers = [ids[i] for i in order], array("Q", (numbers[i] for i in order))
    index = IndexedRows(rows, tuple(names), max(numbers, default=0))
    if _states(rows.files) != before:
        problem = "changes while it is read"
        raise RLLoopError.of("data.source", rows.config.source, problem, "queue it afterwards")
    return Indexed(index, ids, numbers)


class IndexedRows:
    """The rows of a source, read from its files by their numbers."""

    def __init__(self, rows: Rows, names: Sequence[str], last: int) -> None:
        """`last`: number of the last row that is used."""
        self.names = names
        """Columns that any of them has."""
        self._lines = _Lines(rows.files, last)
        self._reading, self._id_field = rows.reading, rows.config.id_field
        self.row = functools.lru_cache(_KEPT)(self._row)
        """The row of a number. Raises RLLoopError where its line is another one by now."""

    def _row(self, number: int) -> Row:
        columns = json_lines.row_of(self._lines.read(number))
        assert self._reading is not None
        assert not isinstance(columns, BadRowError)
        return row_of(columns, self._reading, self._id_field, number)


class _Lines:
    """Where the lines of some files begin, numbered through as `Rows` does: the blank ones at the
    end of a file do not count.
    """

    def __init__(self, files: Sequence[Path], last: int) -> None:
        """Up to line number `last`."""
        self._files = files
        self._file, self._start = array("H"), array("Q")
        self._length, self._sum = array("I"), array("I")
        for index, path in enumerate(files):
            if len(self._start) < last:
                with opened(path) as stream:
                    self._add(index, stream, last)

    def _add(self, index: int, stream: BinaryIO, last: int) -> None:
        start, end = 0, len(self._start)
        for line in stream:
            if len(self._start) == last:
                return
            self._file.append(index)
            self._start.append(start)
            self._length.append(len(line))
            self._sum.append(zlib.crc32(line))
            row = json_lines.bare(line, first=start == 0)
            if row and not row.isspace():
                end = len(self._start)
            start += len(line)
        for column in (self._file, self._start, self._length, self._sum):
            del column[end:]

    def read(self, number: int) -> bytes:
        """Without its end. Raises RLLoopError where it is not what it was."""
        place = number - 1
        path = self._files[self._file[place]]
        start = self._start[place]
        try:
            with opened(path) as stream:
                line = os.pread(stream.fileno(), self._length[place], start)
        except OSError as error:
            raise _gone(path, why(error)) from None
        if zlib.crc32(line) != self._sum[place]:
            raise _gone(path, f"has other rows at byte {start} than when it was indexed")
        return json_lines.bare(line, first=start == 0)


def _gone(path: Path, problem: str) -> RLLoopError:
    return RLLoopError.of("data.source", str(path), problem, "restore the file, and resume")


def _states(files: Sequence[Path]) -> Sequence[Hashable]:
    """What another content would change."""
    states = [path.stat() for path in files]
    return [(one.st_ino, one.st_size, one.st_mtime_ns) for one in states]
