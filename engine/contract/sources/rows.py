"""The rows of a source, one after the other: read, recognised, filtered.

Knows no verifier, and keeps no row that it has handed on.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from engine.contract.documents import why
from engine.contract.errors import RLLoopError
from engine.contract.sources.bad_rows import BadRowError, BadRows
from engine.contract.sources.config import SourceConfig
from engine.contract.sources.files.found import files_of
from engine.contract.sources.files.reading import File
from engine.contract.sources.files.splits import SplitError
from engine.contract.sources.layouts.reading import Part, Reading, first_of
from engine.contract.sources.layouts.recognised import named, recognised, wants
from engine.contract.sources.values import (
    Columns,
    Line,
    answer,
    check_unicode,
    id_of,
    plain,
    question,
)


class Row(NamedTuple):
    """One row that can be trained on."""

    id: str
    prompt: str
    answer: str
    solution: str | None
    messages: Sequence[Mapping[str, str]] | None
    """The prompt where it is a conversation."""
    columns: dict[str, Any]
    """The whole row by its own names."""
    number: int
    """Its place in the source, from 1; of a single file of lines the number of its line."""


class Rows:
    """One pass over a source; what it found is known at its end."""

    def __init__(self, config: SourceConfig) -> None:
        self.config = config
        self.bad = BadRows()
        self.reading: Reading | None = None
        self.columns: Sequence[str] = ()
        """Of the first row."""
        self.files = found_files(config)
        self._seen: dict[str, str] = {}

    def __iter__(self) -> Iterator[Row]:
        """Raises RLLoopError for what cannot be read, and at the end for all bad rows together."""
        with closing(self._good()) as good:
            yield from itertools.islice(good, self.config.limit)
        if self.bad.count and self.config.bad_rows == "refuse":
            raise self.bad.refused(self.config.source)

    def said(self) -> Sequence[str]:
        """What a person should know of how the rows were read."""
        found = [] if self.reading is None else [_read_as(self.reading)]
        dropped = self.bad.dropped() if self.config.bad_rows == "drop" else ""
        return [*found, *([dropped] if dropped else [])]

    def _good(self) -> Generator[Row]:
        before = 0
        for path in self.files:
            number = 0
            for file, number, columns in self._each(path):
                place = (_place(file, path, several=len(self.files) > 1), str(number))
                try:
                    if isinstance(columns, BadRowError):
                        raise columns
                    row = self._row(columns, before + number)
                    self._check_id(row.id, place)
                except BadRowError as bad:
                    self.bad.add(place, bad)
                else:
                    yield row
            before += number

    def _each(self, path: Path) -> Iterator[tuple[File, int, dict[str, Any] | BadRowError]]:
        try:
            file = File(path)
            whole = self.config.limit is None
            with closing(file.each(self.config.split, whole=whole)) as found:
                for number, columns in found:
                    yield file, number, columns
        except SplitError as error:
            raise _refused(path, error.problem, error.remedy, "data.split") from None
        except OSError as error:
            raise _refused(path, why(error), _READABLE) from None

    def _row(self, columns: dict[str, Any], number: int) -> Row:
        if self.reading is None:
            self.reading, self.columns = reading_of(columns, self.config), list(columns)
        reading = self.reading
        asked, messages = question(reading.prompt.of(columns), columns, reading.prompt.column)
        gold = _answer(reading.answer, columns)
        worked = None if reading.solution is None else reading.solution.of(columns)
        id_column = self.config.id_field or first_of(columns, reading.ids) or "id"
        row = Row(
            id_of(columns, id_column, number),
            asked,
            gold,
            worked if worked and isinstance(worked, str) else None,
            messages,
            plain(columns),
            number,
        )
        for name in ("id", "prompt", "answer", "solution"):
            check_unicode(name, getattr(row, name) or "")
        return row

    def _check_id(self, id_: str, place: tuple[str, str]) -> None:
        if isinstance(id_, Line):
            return
        where = " ".join(place)
        if self._seen.setdefault(id_, where) != where:
            problem = f"id {id_!r} stands in {self._seen[id_]} too"
            raise BadRowError(problem, "give each row an id of its own, or set data.id_field")


_READABLE = (
    "name a readable file or folder of rows: JSONL in UTF-8, JSON, CSV, Parquet or Arrow "
    "(docs/data.md)"
)


def found_files(config: SourceConfig) -> Sequence[Path]:
    """The files of the source. Raises RLLoopError."""
    try:
        return files_of(config.source, config.split)
    except SplitError as error:
        raise _refused(config.source, error.problem, error.remedy, "data.split") from None
    except OSError as error:
        raise _refused(config.source, why(error), _READABLE) from None


def _refused(
    path: str | Path, problem: str, remedy: str, field: str = "data.source"
) -> RLLoopError:
    return RLLoopError.of(field, str(path), problem, remedy)


def _place(file: File, path: Path, *, several: bool) -> str:
    return f"{path.name} {file.counts}" if several else file.counts


def reading_of(columns: Columns, config: SourceConfig) -> Reading:
    """How rows with such columns are read; what the config names wins over the layout.

    Raises RLLoopError where the layout that it names does not fit.
    """
    if config.layout is None:
        found = recognised(columns) or _BY_DEFAULT
    else:
        fits = named(config.layout, columns)
        if fits is None:
            has = ", ".join(map(repr, columns)) or "none"
            problem = f"wants columns {wants(config.layout)}; the columns are {has}"
            remedy = "name another layout, or leave it out and set data.prompt_field"
            raise RLLoopError.of("data.layout", config.layout, problem, remedy)
        found = fits
    return Reading(
        found.layout,
        found.title,
        Part(config.prompt_field) if config.prompt_field else found.prompt,
        Part(config.answer_field) if config.answer_field else found.answer,
        Part(config.solution_field) if config.solution_field else found.solution,
        found.ids,
    )


_BY_DEFAULT = Reading(
    "plain", "questions and answers", Part("prompt"), Part("answer"), Part("solution")
)
"""Of columns that no layout knows: each row says what it lacks."""


def _answer(part: Part | None, columns: Columns) -> str:
    if part is None:
        return ""
    value = part.of(columns)
    return answer(value, columns, part.column)


def _read_as(reading: Reading) -> str:
    return f"read as {reading.title}: {', '.join(reading.columns)}"
