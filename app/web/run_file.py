"""The table of runs as a file: what a page shows, in its order, with the ends of each interval.

Differences are in points, as on the page. Knows no route.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from app.text.wording import iso
from worker.read.runs.columns import Column
from worker.read.runs.run import Run
from worker.read.runs.table import Table

ALWAYS = ("id", "name", "kind", "state", "verdict", "gain", "before", "after", "rows", "tag")
"""Before the columns that were asked for."""


def columns_of(table: Table, wanted: Sequence[Column]) -> dict[str, Column]:
    """Each once, by its key."""
    columns = [*(table.columns.find(key) for key in ALWAYS), *wanted]
    return {column.key: column for column in columns}


def types_of(columns: dict[str, Column]) -> dict[str, type]:
    """Of the file's columns; a difference has two more, the ends of its 95 % interval."""
    found: dict[str, type] = {}
    for key, column in columns.items():
        found[key] = float if column.kind == "number" and column.unit != "moment" else str
        if key == "id":
            found[key] = int
        if column.change is not None:
            found |= {f"{key}_low": float, f"{key}_high": float}
    return found


def rows_of(runs: Sequence[Run], columns: dict[str, Column]) -> Iterator[dict[str, Any]]:
    """A dictionary a run."""
    return (_row(run, columns) for run in runs)


def _row(run: Run, columns: dict[str, Column]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, column in columns.items():
        value = column.value(run)
        if column.unit == "moment" and isinstance(value, float):
            value = iso(value)
        elif isinstance(value, tuple):
            value = ", ".join(value)
        row[key] = int(value) if key == "id" and isinstance(value, float) else value
        if column.change is not None:
            change = column.change(run)
            for end in ("low", "high"):
                found = getattr(change, end, None)
                row[f"{key}_{end}"] = None if found is None else 100 * found
    return row
