"""JSON: a list of rows, or an object that holds it; several lists are several splits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from engine.contract.documents import UnreadableError, parse_json
from engine.contract.sources.bad_rows import BadRowError
from engine.contract.sources.files.splits import chosen
from engine.contract.sources.values import Written

ENDINGS = (".json",)
COUNTS = "row"

MOST_BYTES = 512 * 2**20
"""Of a document, which is read whole."""
_LIST_NAMES = ("data", "rows", "examples", "instances")


def read(stream: BinaryIO, split: str | None) -> Iterator[tuple[int, dict[str, Any] | BadRowError]]:
    """Each element of the list."""
    for number, row in enumerate(_rows(_document(stream), split), 1):
        if isinstance(row, dict):
            yield number, row
        else:
            yield number, BadRowError("is not a JSON object", "write a list of objects")


def _document(stream: BinaryIO) -> Any:
    data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise UnreadableError(
            f"has more than {MOST_BYTES // 2**20} MiB of JSON, which would be read whole; write it "
            "as JSONL, one object a line"
        )
    return parse_json(data, real=Written)


def _rows(document: Any, split: str | None) -> Sequence[Any]:
    if isinstance(document, list):
        return document
    if not isinstance(document, dict):
        raise UnreadableError("is no list of rows")
    for name in _LIST_NAMES:
        if isinstance(document.get(name), list):
            return _list(document[name])
    lists = {
        name: rows
        for name, rows in document.items()
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows[:3])
    }
    if not lists:
        return [document]  # a JSONL file of one line
    return _list(lists[chosen(list(lists), split)])


def _list(rows: list[Any]) -> Sequence[Any]:
    return rows
