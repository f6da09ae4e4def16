"""Parquet and Arrow, a batch of rows at a time, through pyarrow: an extra of the package."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any, BinaryIO

from engine.contract.documents import UnreadableError
from engine.contract.sources.bad_rows import BadRowError
from engine.contract.sources.values import plain

ENDINGS = (".parquet", ".arrow", ".feather")
COUNTS = "row"
NEEDS = "pyarrow"

_BATCH = 256
"""Rows at a time: one may hold a whole conversation."""


def read(stream: BinaryIO, split: str | None) -> Iterator[tuple[int, dict[str, Any] | BadRowError]]:
    """Each row of the file, whichever of the two formats it has inside."""
    del split
    if importlib.util.find_spec(NEEDS) is None:
        raise UnreadableError(
            "is Parquet or Arrow, which pyarrow reads; pip install 'nightlane[parquet]'"
        )
    import pyarrow  # noqa: PLC0415 - an extra, and a tenth of a second of every start

    number = 0
    try:
        for batch in _batches(stream):
            for row in batch.to_pylist():
                number += 1
                yield number, plain(row)
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, OverflowError) as error:
        if isinstance(error, UnreadableError):
            raise
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        where = f"row {number + 1} " if number else ""
        raise UnreadableError(f"cannot be read {where}as Parquet or Arrow ({reason})") from None


def _batches(stream: BinaryIO) -> Iterator[Any]:
    import pyarrow.ipc  # noqa: PLC0415
    import pyarrow.parquet  # noqa: PLC0415

    magic = stream.read(6)
    stream.seek(0)
    if magic.startswith(b"PAR1"):
        with pyarrow.parquet.ParquetFile(stream) as file:
            yield from file.iter_batches(batch_size=_BATCH)
        return
    if magic == b"ARROW1":
        with pyarrow.ipc.open_file(stream) as file:
            for index in range(file.num_record_batches):
                yield from _pieces(file.get_batch(index))
        return
    with pyarrow.ipc.open_stream(stream) as batches:
        for batch in batches:
            yield from _pieces(batch)


def _pieces(batch: Any) -> Iterator[Any]:
    for start in range(0, batch.num_rows, _BATCH):
        yield batch.slice(start, _BATCH)
