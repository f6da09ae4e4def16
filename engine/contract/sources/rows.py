"""The rows of a source, one after the other: read, recognised, filtered.

Knows no verifier, and keeps no row that it has handed on.
"""

from __future__ import annotations

import bisect
import difflib
import itertools
import operator
import random
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from engine.contract.documents import why
from engine.contract.errors import RLLoopError
from engine.contract.sources.bad_rows import BadRowError, BadRows
from engine.contract.sources.config import SourceConfig
from engine.contract.sources.duplicates import Duplicates
from engine.contract.sources.files.found import files_of
from engine.contract.sources.files.reading import File
from engine.contract.sources.files.splits import SplitError
from engine.contract.sources.generated import Generated, is_generated
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
from engine.contract.sources.where import Counted, parsed


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
    """The rows of a source. What was found on the way is known after one of its passes ended."""

    def __init__(self, config: SourceConfig) -> None:
        self.config = config
        self.files = found_files(config)
        self._pass = _Pass(config, self.files)

    def __iter__(self) -> Iterator[Row]:
        """In the order of the config. Raises RLLoopError for what cannot be read, and at the end
        for all bad rows together.
        """
        if self.config.shuffle is None:
            yield from (row for _, row in self.ranked())
            return
        yield from (row for _, row in sorted(self.ranked(), key=operator.itemgetter(0)))

    def ranked(self) -> Iterator[tuple[int, Row]]:
        """The same rows as they stand in the files, none of them kept, each with its place in the
        order of the config.
        """
        if self.config.shuffle is None:
            yield from enumerate(self._one_pass(self.config.limit))
            return
        count = sum(1 for _ in self._one_pass(None))
        order = list(range(count))
        random.Random(self.config.shuffle).shuffle(order)
        chosen = {place: rank for rank, place in enumerate(order[: self.config.limit])}
        for place, row in enumerate(self._one_pass(None)):
            if place in chosen:
                yield chosen[place], row

    def _one_pass(self, limit: int | None) -> Iterator[Row]:
        self._pass = _Pass(self.config, self.files)
        return self._pass.rows(limit)

    @property
    def reading(self) -> Reading | None:
        """None where there was no row."""
        return self._pass.reading

    @property
    def columns(self) -> Sequence[str]:
        """Of the first row."""
        return self._pass.columns

    def said(self) -> Sequence[str]:
        """How the rows were read, a sentence each."""
        reading, config = self.reading, self.config
        if reading is None:
            return []
        found = [f"read as {reading.title}: {', '.join(reading.columns)}"]
        if config.shuffle is not None:
            found.append(f"shuffled with seed {config.shuffle}")
        return found

    def left_out(self) -> Sequence[str]:
        """What of the source is not used, and why, a sentence each."""
        return list(filter(None, self._pass.left_out()))


class _Pass:
    """One way through the files, with all that it counts."""

    def __init__(self, config: SourceConfig, files: Sequence[Path]) -> None:
        self.config, self.files = config, files
        self.reading: Reading | None = None
        self.columns: Sequence[str] = ()
        self._bad, self._counted = BadRows(), Counted()
        self._where = parsed(config.where) if config.where else None
        refuse = config.conflicts == "refuse"
        self._duplicates = Duplicates(
            config.dedupe, refuse_conflicts=refuse, place_of=self._place_of
        )
        self._ids: dict[str, int] = {}
        self._begun: list[tuple[int, File | Generated]] = []
        """Files with the number of rows in front of them."""

    def rows(self, limit: int | None) -> Iterator[Row]:
        """Those that are used. Raises RLLoopError."""
        if self._duplicates.looks_first:
            first = _Pass(self.config.model_copy(update=_ALL), self.files)
            self._duplicates.learn(row.prompt for row in first.rows(None))
        with closing(self._good()) as good:
            yield from itertools.islice(good, limit)
        self._ids.clear()
        self._duplicates.forget()
        if self._bad.count and self.config.bad_rows == "refuse":
            raise self._bad.refused(self.config.source)
        self._require_where()

    def left_out(self) -> Iterator[str]:
        """A sentence for each reason, empty where it left nothing out."""
        counted = self._counted
        if self._where is not None:
            yield f"where: {self._where.condition} keeps {counted.kept} of {counted.seen} rows"
        if counted.no_number:
            shown = ", ".join(counted.no_numbers)
            rows = "1 row is" if counted.no_number == 1 else f"{counted.no_number} rows are"
            yield f"{rows} outside the filter for a value that is no number ({shown})"
        yield self._duplicates.said()
        yield self._bad.dropped()

    def _good(self) -> Generator[Row]:
        before = 0
        for path in self.files or [Path(self.config.source)]:
            number = 0
            for number, columns in self._each(path, before):
                try:
                    row = self._used(columns, before + number)
                except BadRowError as bad:
                    self._bad.add(self._named(before + number), bad)
                else:
                    if row is not None:
                        yield row
            before += number

    def _each(self, path: Path, before: int) -> Iterator[tuple[int, dict[str, Any] | BadRowError]]:
        try:
            file = File(path) if self.files else Generated(self.config.source)
            self._begun.append((before, file))
            whole = self.config.limit is None or self.config.shuffle is not None
            with closing(file.each(self.config.split, whole=whole)) as found:
                yield from found
        except SplitError as error:
            raise _refused(path, error.problem, error.remedy, "data.split") from None
        except OSError as error:
            raise _refused(path, why(error), _READABLE) from None

    def _named(self, number: int) -> tuple[str, str]:
        """What is counted in which file, and the number there, of a row by its number here."""
        begun = bisect.bisect_left(self._begun, number, key=operator.itemgetter(0)) - 1
        before, file = self._begun[begun]
        several = len(self.files) > 1
        counts = f"{file.path.name} {file.counts}" if several else file.counts
        return counts, str(number - before)

    def _place_of(self, number: int) -> str:
        return " ".join(self._named(number))

    def _used(self, columns: dict[str, Any] | BadRowError, number: int) -> Row | None:
        """None for a row that a filter leaves out. Raises BadRowError."""
        if isinstance(columns, BadRowError):
            raise columns
        if self.reading is None:
            self.reading, self.columns = reading_of(columns, self.config), list(columns)
        if self._where is not None and not self._where.keeps(columns, self._counted):
            return None
        row = row_of(columns, self.reading, self.config.id_field, number)
        self._check_id(row.id, number)
        gold = "" if self.reading.asks_once else row.answer
        return None if self._duplicates.repeats(row.prompt, gold, number) else row

    def _check_id(self, id_: str, number: int) -> None:
        if isinstance(id_, Line):
            return
        first = self._ids.setdefault(id_, number)
        if first != number:
            problem = f"id {id_!r} stands in {self._place_of(first)} too"
            raise BadRowError(problem, "give each row an id of its own, or set data.id_field")

    def _require_where(self) -> None:
        """A condition that leaves no row, or asks for a column that no row has."""
        if self._where is None or not self._counted.seen:
            return
        for column in self._where.columns:
            if column not in self._counted.met and self._is_unknown(column):
                near = difflib.get_close_matches(column, self.columns, 1)
                remedy = f"did you mean {near[0]}?" if near else "name one of these"
                problem = f"names {column}, which no row has; the columns are {self._names()}"
                raise _refused(self._where.condition, problem, remedy, "data.where")
        if not self._counted.kept:
            met = "; ".join(
                f"{column} holds {', '.join(values)}, …"
                for column, values in self._counted.met.items()
            )
            problem = f"leaves none of {self._counted.seen} rows: {met}"
            raise _refused(self._where.condition, problem, "correct the condition", "data.where")

    def _is_unknown(self, column: str) -> bool:
        return column.partition(".")[0] not in self.columns or "." in column

    def _names(self) -> str:
        return ", ".join(map(repr, self.columns[:12])) or "none"


_ALL: Mapping[str, Any] = {"dedupe": "off", "conflicts": "keep", "bad_rows": "drop"}
"""What of a config a first look at all prompts does without."""


def row_of(columns: dict[str, Any], reading: Reading, id_field: str | None, number: int) -> Row:
    """A row as it is trained on. Raises BadRowError."""
    asked, messages = question(reading.prompt.of(columns), columns, reading.prompt.column)
    gold, worked = reading.answer, reading.solution
    solution = None if worked is None else worked.of(columns)
    row = Row(
        id_of(columns, id_field or first_of(columns, reading.ids) or "id", number),
        asked,
        "" if gold is None else answer(gold.of(columns), columns, gold.column),
        solution if solution and isinstance(solution, str) else None,
        messages,
        plain(columns),
        number,
    )
    for name in ("id", "prompt", "answer", "solution"):
        check_unicode(name, getattr(row, name) or "")
    return row


_READABLE = (
    "name a readable file or folder of rows: JSONL in UTF-8, JSON, CSV, Parquet or Arrow "
    "(docs/data.md)"
)


def found_files(config: SourceConfig) -> Sequence[Path]:
    """The files of the source; none where its rows are generated. Raises RLLoopError."""
    if is_generated(config.source):
        return []
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
        found.asks_once,
    )


_BY_DEFAULT = Reading(
    "plain", "questions and answers", Part("prompt"), Part("answer"), Part("solution")
)
"""Of columns that no layout knows: each row says what it lacks."""
