"""The table of runs: which ones a filter leaves, in which order, in which groups.

Sorting and filtering see every run, whatever a page shows. Knows no page.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from engine.contract.between_runs import Spread, spread
from worker.db.connection import Database
from worker.read.runs import filter as language
from worker.read.runs.columns import Column, Columns
from worker.read.runs.filter import Value, matcher
from worker.read.runs.run import Run, read_runs, series_names
from worker.screen import folded

RECIPE = "recipe"
"""Groups of runs that differ in their seed alone."""
NO_GROUPS = "none"
_SEED_AT_END = re.compile(r"[\s,;:_/-]*(?:\bseeds?\b|\bs)?[\s=:_-]*$", re.IGNORECASE)
_LIFTS = (-1.0, 1.0)


@dataclass(frozen=True)
class Asked:
    """What an address asks for."""

    q: str = ""
    sort: str = "-gain"
    """A column; with `-` the largest first. Missing values come last either way."""
    group: str = RECIPE
    archived: bool = False
    """Those that were put away, instead."""
    columns: tuple[str, ...] = ()
    """Beside those that are always shown; empty: the usual ones."""


@dataclass(frozen=True)
class Group:
    """Runs with one value in common; one that stands alone has no head."""

    title: str | None
    runs: Sequence[Run]

    def between(self, column: Column) -> Spread | None:
        """Mean and interval of a column of differences over the runs that have one, in shares."""
        if column.change is None:
            return None
        found = [change.lift for run in self.runs if (change := column.change(run)) is not None]
        return spread(found, _LIFTS) if found else None

    def common(self, column: Column) -> Value:
        """The value that all runs have in common; None where they differ."""
        values = {column.value(run) for run in self.runs}
        return values.pop() if len(values) == 1 else None


@dataclass(frozen=True)
class Table:
    """The answer."""

    asked: Asked
    every: Sequence[Run]
    """Before the filter."""
    runs: Sequence[Run]
    """What the filter left, in order."""
    groups: Sequence[Group]
    columns: Columns

    def best(self, column: Column) -> Run | None:
        """The run with the largest difference among those shown; a demonstration never leads."""
        change = column.change
        assert change is not None, "only differences have a best"
        real = [(found.lift, run) for run in self.runs if not run.demo and (found := change(run))]
        return max(real, key=lambda pair: (pair[0], -pair[1].id))[1] if real else None


@dataclass(frozen=True)
class Reading:
    """The runs as they were at one moment."""

    runs: Sequence[Run]
    columns: Columns


def read(db: Database, *, archived: bool = False, series: Sequence[str] = ()) -> Reading:
    """All runs, with the last values of the series among `series` that there are."""
    known = series_names(db) if series else []
    runs = read_runs(db, archived=archived, series=[name for name in series if name in known])
    return Reading(runs, Columns(runs, known))


def series_in(asked: Asked) -> tuple[str, ...]:
    """The names in what was asked that may be those of series. Raises ConfigError."""
    terms = language.terms(asked.q)
    named = [asked.sort.removeprefix("-"), asked.group, *asked.columns]
    named += [term.column for term in terms if term.column]
    return tuple(sorted({key for key in named if "/" in key}))


def read_table(db: Database, asked: Asked) -> Table:
    """Raises ConfigError for a filter that cannot be read, and for a column that there is not."""
    return table_of(read(db, archived=asked.archived, series=series_in(asked)), asked)


def table_of(reading: Reading, asked: Asked) -> Table:
    """The same from runs at hand."""
    runs, columns = reading.runs, reading.columns
    left = matching(runs, asked.q, columns)
    ordered = in_order(left, columns.find(asked.sort.removeprefix("-")), asked.sort)
    return Table(asked, runs, ordered, _grouped(ordered, asked, columns), columns)


def matching(runs: Sequence[Run], text: str, columns: Columns) -> list[Run]:
    """The runs that meet every term of a filter. Raises ConfigError."""
    left = list(runs)
    for term in language.terms(text):
        if term.column is None:
            left = [run for run in left if _says(run, term.condition) != term.negated]
            continue
        column = columns.find(term.column)
        meets = matcher(term, column.kind)
        left = [run for run in left if meets(column.value(run))]
    return left


def _says(run: Run, word: str) -> bool:
    return word == f"#{run.id}" or folded(word) in folded(run.name)


def in_order(runs: Sequence[Run], column: Column, sort: str) -> list[Run]:
    """Missing values last, then the newest first."""
    newest = sorted(runs, key=lambda run: -run.id)
    told = [run for run in newest if _key(column.value(run)) is not None]
    missing = [run for run in newest if _key(column.value(run)) is None]
    told.sort(key=lambda run: _known(column.value(run)), reverse=sort.startswith("-"))
    return [*told, *missing]


def _key(value: Value) -> Any:
    if value is None or value == ():
        return None
    if isinstance(value, float):
        return value
    return folded(value if isinstance(value, str) else ", ".join(value))


def _known(value: Value) -> Any:
    found = _key(value)
    assert found is not None
    return found


def _grouped(runs: Sequence[Run], asked: Asked, columns: Columns) -> list[Group]:
    """In the order of each group's mean in the column of the sort, else of its first run."""
    if asked.group == NO_GROUPS:
        return [Group(None, runs)] if runs else []
    by: dict[Any, list[Run]] = defaultdict(list)
    column = None if asked.group == RECIPE else columns.find(asked.group)
    for run in runs:
        key = (run.group_hash or run.id) if column is None else column.value(run)
        by[key].append(run)
    groups = [Group(_title(key, found, column), found) for key, found in by.items()]
    sort = columns.find(asked.sort.removeprefix("-"))
    if sort.kind != "number":
        return groups
    sign = -1 if asked.sort.startswith("-") else 1
    return sorted(groups, key=lambda group: _rank(group, sort, sign))


def _rank(group: Group, sort: Column, sign: int) -> tuple[bool, float]:
    values = [value for run in group.runs if isinstance(value := sort.value(run), float)]
    mean = sum(values) / len(values) if values else 0.0
    return not values, sign * mean


def _title(key: Any, runs: Sequence[Run], column: Column | None) -> str | None:
    if column is None:
        return recipe_name([run.name for run in runs]) if len(runs) > 1 else None
    if key is None or key == ():
        return f"no {column.key}"
    if isinstance(key, float):
        return f"{column.key} {key:g}"
    return f"{column.key} {key if isinstance(key, str) else ', '.join(key)}"


def recipe_name(names: Sequence[str]) -> str:
    """What names of runs that differ in their seed have in common.

    >>> recipe_name(["KL 0.1, seed 3", "KL 0.1, seed 4"]), recipe_name(["mix-s0", "mix-s12"])
    ('KL 0.1', 'mix')
    """
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    common = "".join(letters[0] for letters in alike)
    if len(set(names)) > 1:
        common = _SEED_AT_END.sub("", common.rstrip("0123456789"))
    return common.strip() or names[0]


def shares(runs: Sequence[Run]) -> Mapping[str, float]:
    """What the runs took together: hours of the lane and US dollars."""
    return {
        "hours": sum(run.seconds or 0 for run in runs) / 3600,
        "usd": sum(run.usd or 0 for run in runs),
    }
