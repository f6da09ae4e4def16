"""JSONL: one JSON object a line, none of them kept."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, BinaryIO

from engine.contract.documents import MAX_LINE, UnreadableError, parse_json
from engine.contract.sources.bad_rows import BadRowError
from engine.contract.sources.values import Written

ENDINGS = (".jsonl", ".ndjson", ".jsonlines")
COUNTS = "line"

_REMEDY = "write one JSON object a line"
_MARK = b"\xef\xbb\xbf"


def read(stream: BinaryIO, split: str | None) -> Iterator[tuple[int, dict[str, Any] | BadRowError]]:
    """Each line that is not blank."""
    del split  # a file of lines is one split
    for number in itertools.count(1):
        line = stream.readline(MAX_LINE + 1)
        if not line:
            return
        if len(line) > MAX_LINE:
            raise UnreadableError(f"line {number} has more than {MAX_LINE // 2**20} MiB in it")
        row = bare(line, first=number == 1)
        if row and not row.isspace():
            yield number, row_of(row)


def bare(line: bytes, *, first: bool) -> bytes:
    """Without its end, and without the mark that some editors write in front of a file."""
    return (line.removeprefix(_MARK) if first else line).rstrip(b"\r\n")


def row_of(line: bytes) -> dict[str, Any] | BadRowError:
    """The object that a line holds, its numbers as they were written."""
    try:
        value = parse_json(line.decode(), real=Written)
    except UnicodeDecodeError:
        return BadRowError("is not UTF-8 text", "save the file as UTF-8")
    except UnreadableError as error:
        return BadRowError(str(error), _REMEDY)
    if not isinstance(value, dict):
        return BadRowError("is not a JSON object", _REMEDY)
    return value
