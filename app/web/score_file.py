"""Scores as one table for programs: a row for each checkpoint and column, in CSV, Parquet or JSON.

Knows no route.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from engine.contract.errors import ConfigError, ConfigProblem
from worker.read.scores.leaderboard import FlatScore

Form = Literal["csv", "parquet", "json"]
MEDIA_TYPES: dict[Form, str] = {
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "json": "application/json",
}
_OF_SCORE = (
    "split",
    "shots",
    "filter",
    "metric",
    "k",
    "samples",
    "runner",
    "n",
    "score",
    "low",
    "high",
    "truncated",
    "unparsed",
    "ended_n",
    "ended",
    "picked",
    "bench_hash",
    "temp",
    "max_new_tokens",
    "chat_template",
    "tensor_parallel",
    "version",
)
_CHANGE = ("baseline", "change", "change_low", "change_high")
COLUMNS = (
    *("checkpoint", "base", "run", "step", "path", "bench"),
    *_OF_SCORE,
    *_CHANGE,
    *("chosen", "published", "job", "config_hash", "data_hash", "measure", "ref"),
)
_BEGINS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_AT_ONCE = 5_000
"""Rows of a group in a Parquet file."""
_WHOLE = (
    *("run", "step", "shots", "k", "samples", "n", "ended_n", "job"),
    *("max_new_tokens", "tensor_parallel"),
)
_REAL = (
    *("score", "low", "high", "truncated", "unparsed", "ended", "temp"),
    *_CHANGE,
)
_TRUTH = ("picked", "chosen", "published", "chat_template")


def flat(one: FlatScore) -> dict[str, Any]:
    """One row; `change` is against step 0 of the run, unpaired. Shares of one."""
    line, cell, moved = one.line, one.cell, one.cell.change
    said = cell.said
    return {
        "checkpoint": said.checkpoint,
        "base": line.base,
        "run": line.run,
        "step": line.step,
        "path": said.path,
        "bench": said.bench,
        **{name: getattr(said, name) for name in _OF_SCORE},
        "baseline": moved.before if moved else None,
        "change": moved.lift if moved else None,
        "change_low": moved.low if moved else None,
        "change_high": moved.high if moved else None,
        "chosen": line.chosen,
        "published": line.published,
        "job": cell.job_id,
        "config_hash": cell.config_hash,
        "data_hash": cell.data_hash,
        "measure": cell.measure,
        "ref": cell.ref,
    }


def written(rows: Iterable[FlatScore], form: Form) -> Iterator[bytes]:
    """A file of them, piece by piece. Raises ConfigError where Parquet cannot be written."""
    if form == "parquet":
        return iter([parquet(rows)])
    pieces = csv_lines(rows) if form == "csv" else _json(rows)
    return (piece.encode(errors="replace") for piece in pieces)


def csv_lines(rows: Iterable[FlatScore]) -> Iterator[str]:
    """The head, then a line each."""
    pen = io.StringIO()
    writer = csv.writer(pen)
    writer.writerow(COLUMNS)
    for row in map(flat, rows):
        yield pen.getvalue()
        pen.seek(0)
        pen.truncate()
        writer.writerow([_guarded(row[name]) for name in COLUMNS])
    yield pen.getvalue()


def _guarded(value: Any) -> Any:
    """A spreadsheet would reckon with a name that begins like a formula."""
    if isinstance(value, bool):
        return str(value).lower()
    begins = isinstance(value, str) and value.startswith(_BEGINS_A_FORMULA)
    return f"'{value}" if begins else value


def _json(rows: Iterable[FlatScore]) -> Iterator[str]:
    between = "["
    for row in map(flat, rows):
        yield between + json.dumps(row, ensure_ascii=False)
        between = ",\n"
    yield "[]\n" if between == "[" else "]\n"


def parquet(rows: Iterable[FlatScore]) -> bytes:
    """The whole file. Raises ConfigError without pyarrow."""
    _need_pyarrow()
    import pyarrow  # noqa: PLC0415 - an extra
    import pyarrow.parquet  # noqa: PLC0415

    kinds = {
        **dict.fromkeys(_WHOLE, pyarrow.int64()),
        **dict.fromkeys(_REAL, pyarrow.float64()),
        **dict.fromkeys(_TRUTH, pyarrow.bool_()),
    }
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in COLUMNS])
    held, waiting = io.BytesIO(), map(flat, rows)
    with pyarrow.parquet.ParquetWriter(held, schema) as writer:
        while group := list(itertools.islice(waiting, _AT_ONCE)):
            writer.write_table(pyarrow.Table.from_pylist(group, schema))
    return held.getvalue()


def _need_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401, PLC0415 - an extra
    except ImportError:
        problem = "needs pyarrow, which is not installed"
        remedy = "pip install 'nightlane[parquet]', or ask for csv"
        raise ConfigError([ConfigProblem("format", "parquet", problem, remedy)]) from None
