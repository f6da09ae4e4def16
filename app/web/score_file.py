"""Scores as one table for programs: a row for each checkpoint and column, in CSV, Parquet or JSON.

Knows no route.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from app.web import table_file
from app.web.table_file import Form
from worker.read.scores.leaderboard import FlatScore

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
_WHOLE = (
    *("run", "step", "shots", "k", "samples", "n", "ended_n", "job"),
    *("max_new_tokens", "tensor_parallel"),
)
_REAL = (
    *("score", "low", "high", "truncated", "unparsed", "ended", "temp"),
    *_CHANGE,
)
_TRUTH = ("picked", "chosen", "published", "chat_template")
TYPES: Mapping[str, type] = {
    **dict.fromkeys(COLUMNS, str),
    **dict.fromkeys(_WHOLE, int),
    **dict.fromkeys(_REAL, float),
    **dict.fromkeys(_TRUTH, bool),
}


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
    return table_file.written(map(flat, rows), TYPES, form)
