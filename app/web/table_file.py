"""A table as a file for programs: CSV, Parquet or JSON, a dictionary a row. Knows no table."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from engine.contract.errors import ConfigError, ConfigProblem

Form = Literal["csv", "parquet", "json"]
MEDIA_TYPES: dict[Form, str] = {
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "json": "application/json",
}
Row = Mapping[str, Any]
Columns = Mapping[str, type]
"""Name → int, float, bool or str."""
_BEGINS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_AT_ONCE = 5_000
"""Rows of a group in a Parquet file."""


def written(rows: Iterable[Row], columns: Columns, form: Form) -> Iterator[bytes]:
    """A file of them, piece by piece. Raises ConfigError where Parquet cannot be written."""
    if form == "parquet":
        return iter([parquet(rows, columns)])
    pieces = csv_lines(rows, list(columns)) if form == "csv" else _json(rows)
    return (piece.encode(errors="replace") for piece in pieces)


def csv_lines(rows: Iterable[Row], names: Sequence[str]) -> Iterator[str]:
    """The head, then a line each."""
    pen = io.StringIO()
    writer = csv.writer(pen)
    writer.writerow([_guarded(name) for name in names])
    for row in rows:
        yield pen.getvalue()
        pen.seek(0)
        pen.truncate()
        writer.writerow([_guarded(row[name]) for name in names])
    yield pen.getvalue()


def _guarded(value: Any) -> Any:
    """A spreadsheet would reckon with a name that begins like a formula."""
    if isinstance(value, bool):
        return str(value).lower()
    begins = isinstance(value, str) and value.startswith(_BEGINS_A_FORMULA)
    return f"'{value}" if begins else value


def _json(rows: Iterable[Row]) -> Iterator[str]:
    between = "["
    for row in rows:
        yield between + json.dumps(row, ensure_ascii=False)
        between = ",\n"
    yield "[]\n" if between == "[" else "]\n"


def parquet(rows: Iterable[Row], columns: Columns) -> bytes:
    """The whole file. Raises ConfigError without pyarrow."""
    need_pyarrow()
    import pyarrow  # noqa: PLC0415 - an extra
    import pyarrow.parquet  # noqa: PLC0415

    kinds = {
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        bool: pyarrow.bool_(),
        str: pyarrow.string(),
    }
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in columns.items()])
    held, waiting = io.BytesIO(), iter(rows)
    with pyarrow.parquet.ParquetWriter(held, schema) as writer:
        while group := list(itertools.islice(waiting, _AT_ONCE)):
            writer.write_table(pyarrow.Table.from_pylist(group, schema))
    return held.getvalue()


def need_pyarrow() -> None:
    """Raises ConfigError without it."""
    try:
        import pyarrow  # noqa: F401, PLC0415 - an extra
    except ImportError:
        problem = "needs pyarrow, which is not installed"
        remedy = "pip install 'nightlane[parquet]', or ask for csv"
        raise ConfigError([ConfigProblem("format", "parquet", problem, remedy)]) from None
