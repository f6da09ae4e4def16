"""The first rows of a source, for what is said of its prompts before a job is queued."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from engine.contract.errors import RLLoopError
from engine.contract.sources.bad_rows import BadRowError
from engine.contract.sources.file_looks import once_a_file
from engine.contract.sources.files.reading import File
from engine.contract.sources.files.splits import SplitError
from engine.contract.sources.generated import is_generated
from engine.contract.sources.questions import SourceConfig, found_files, read_rows
from engine.contract.sources.rows import reading_of

MOST = 100


class FirstRow(NamedTuple):
    """One of them."""

    id: str
    turns: Sequence[Mapping[str, str]]
    """Its conversation, the question last."""
    columns: Mapping[str, Any]
    answer: str = ""

    @property
    def question(self) -> str:
        return self.turns[-1]["content"]


def first_rows(data: SourceConfig) -> Sequence[FirstRow]:
    """Up to a hundred; none of embedded rows, and none where they cannot be read: that is refused
    elsewhere.
    """
    if not (is_generated(data.source) or Path(data.source).is_absolute()):
        return ()
    try:
        return read_first(data)
    except RLLoopError:
        return ()


def read_first(data: SourceConfig) -> Sequence[FirstRow]:
    """The same of files. Raises RLLoopError where they cannot be read."""
    few = SourceConfig.model_validate(
        data.model_dump(include=set(SourceConfig.model_fields))
        | {"limit": min(data.limit or MOST, MOST)}
    )
    return _read(tuple(found_files(few)), few)


@once_a_file
def _read(files: tuple[Path, ...], data: SourceConfig) -> Sequence[FirstRow]:
    del files  # they tell one look from another
    return [
        FirstRow(
            row.id,
            row.messages or [{"role": "user", "content": row.prompt}],
            row.columns,
            row.answer,
        )
        for row in read_rows(data)
    ]


class Mapped(NamedTuple):
    """Which columns a file of rows has, and which of them are read."""

    columns: Sequence[str]
    """Of its first row; `a.b` is b inside a."""
    prompt: str
    """The column of the question, which may not be there."""
    answer: str | None


def mapped(data: SourceConfig) -> Mapped | None:
    """None of generated rows, and where no row can be read: that is refused elsewhere."""
    if is_generated(data.source) or not Path(data.source).is_absolute():
        return None
    try:
        return _mapped(tuple(found_files(data)), data)
    except (RLLoopError, SplitError, OSError):
        return None


@once_a_file
def _mapped(files: tuple[Path, ...], data: SourceConfig) -> Mapped | None:
    with closing(File(files[0]).each(data.split, whole=False)) as found:
        rows = (row for _, row in found if not isinstance(row, BadRowError))
        first = next(rows, None)
    if first is None:
        return None
    reading = reading_of(first, data)
    answer = reading.answer.column if reading.answer is not None else None
    return Mapped(list(_names(first)), reading.prompt.column, answer)


def _names(row: Mapping[str, Any]) -> Iterator[str]:
    for name, value in row.items():
        yield name
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in value)
