"""A file of rows, read by the format that it has: by its ending, else by how it begins."""

from __future__ import annotations

import io
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from engine.contract.documents import MAX_LINE, MAX_ROWS_BYTES, UnreadableError, opened
from engine.contract.sources.bad_rows import BadRowError
from engine.contract.sources.files import columnar, json_document, json_lines, packed, table

_COLUMNAR = (b"PAR1", b"ARROW1")
_FOREIGN = {
    ".zst": "Zstandard", ".xz": "xz", ".bz2": "bzip2", ".zip": "zip", ".tar": "tar",
    ".xlsx": "Excel", ".pkl": "a pickle", ".pt": "a pickle", ".npz": "NumPy",
}  # fmt: skip
"""Endings of what is not read: said before its first bytes look like a broken line."""


class File:
    """One file: `counts` says whether `each` numbers its lines or its rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.format = _format(path)
        self.counts: str = self.format.COUNTS

    @property
    def has_lines(self) -> bool:
        """Whether each row is a line of the file as it stands on the disk."""
        with opened(self.path) as raw:
            return self.format is json_lines and not raw.peek(2).startswith(packed.MAGIC)

    def each(
        self, split: str | None, *, whole: bool = True
    ) -> Generator[tuple[int, dict[str, Any] | BadRowError]]:
        """Number and columns of each row. `whole`: it is read to its end, so its size is asked.

        Raises OSError, UnreadableError and SplitError.
        """
        with opened(self.path) as raw:
            if whole and raw.seek(0, io.SEEK_END) > MAX_ROWS_BYTES:
                raise UnreadableError(f"has more than {MAX_ROWS_BYTES // 2**30} GiB")
            raw.seek(0)
            yield from self.format.read(self._inside(raw), split)

    def _inside(self, raw: io.BufferedReader) -> BinaryIO:
        if not raw.peek(2).startswith(packed.MAGIC):
            return raw
        stream = packed.unpacked(raw)
        if self.format is not columnar:
            return stream
        data = stream.read(json_document.MOST_BYTES + 1)  # it is read from its end
        if len(data) > json_document.MOST_BYTES:
            raise UnreadableError("is a packed Parquet file too large to unpack; unpack it")
        return io.BytesIO(data)


def _format(path: Path) -> ModuleType:
    """Raises OSError for a file that is not there, UnreadableError for one that nothing reads."""
    name = path.name.lower()
    for ending, words in _FOREIGN.items():
        if name.endswith(ending):
            raise UnreadableError(f"is {words}, which is not read; unpack it or write it as JSONL")
    bare = name.removesuffix(packed.ENDING)
    with opened(path) as raw:
        packed_too = raw.peek(2).startswith(packed.MAGIC)
        stream = packed.unpacked(raw) if packed_too else raw
        if stream.peek(8).startswith(_COLUMNAR) or bare.endswith(columnar.ENDINGS):
            return columnar
        for form in (table, json_lines):
            if bare.endswith(form.ENDINGS):
                return form
        named = bare.endswith(json_document.ENDINGS)
        return json_document if _is_document(stream, named=named) else json_lines


def _is_document(stream: BinaryIO, *, named: bool) -> bool:
    """Whether it is one JSON value over many lines; many a file named .json is JSONL."""
    first = stream.readline(MAX_LINE)
    text = first.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"["):
        return True
    if not named or not text.startswith(b"{"):
        return False
    return not isinstance(json_lines.row_of(text), dict) or not stream.readline(2**16).strip()
