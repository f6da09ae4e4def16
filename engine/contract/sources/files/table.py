"""CSV and TSV: the first line names the columns, each value is a text. Quotes may hold lines."""

from __future__ import annotations

import csv
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from engine.contract.documents import MAX_LINE, UnreadableError
from engine.contract.sources.bad_rows import BadRowError

ENDINGS = (".csv", ".tsv")
COUNTS = "line"


def read(stream: BinaryIO, split: str | None) -> Iterator[tuple[int, dict[str, Any] | BadRowError]]:
    """Each record; its number is that of the line on which it ends."""
    del split
    csv.field_size_limit(MAX_LINE)
    lines = _lines(stream)
    try:
        first = next(lines, "")
        rows = csv.reader(itertools.chain([first], lines), delimiter=_delimiter(first), strict=True)
        names = _header(next(rows, []))
        for row in rows:
            if row:
                yield rows.line_num, _columns(names, row)
    except csv.Error as error:
        raise UnreadableError(f"is no table of comma-separated values ({error})") from None


def _lines(stream: BinaryIO) -> Iterator[str]:
    for number in itertools.count(1):
        line = stream.readline(MAX_LINE + 1)
        if not line:
            return
        if len(line) > MAX_LINE:
            raise UnreadableError(f"line {number} has more than {MAX_LINE // 2**20} MiB in it")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise UnreadableError(f"line {number} is not UTF-8 text") from None


def _delimiter(header: str) -> str:
    """The sign that stands most often in the first line."""
    return max("\t,;", key=lambda sign: (header.count(sign), sign == ","))


def _header(names: Sequence[str]) -> Sequence[str]:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if not any(names):
        raise UnreadableError("names no columns in its first line")
    if twice:
        raise UnreadableError(f"has two columns named {twice[0][:60]!r}")
    return names


def _columns(names: Sequence[str], row: Sequence[str]) -> dict[str, Any] | BadRowError:
    if len(row) != len(names):
        problem = f"has {len(row)} values, and the first line names {len(names)} columns"
        return BadRowError(problem, "put values that hold the separator or a quote into quotes")
    return dict(zip(names, row, strict=True))
