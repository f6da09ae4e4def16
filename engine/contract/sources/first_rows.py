"""The first rows of a source, for what is said of its prompts before a job is queued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.contract.errors import RLLoopError
from engine.contract.sources.file_looks import once_a_file
from engine.contract.sources.generated import is_generated
from engine.contract.sources.questions import SourceConfig, found_files, read_rows

MOST = 100


class FirstRow(NamedTuple):
    """One of them."""

    id: str
    turns: Sequence[Mapping[str, str]]
    """Its conversation, the question last."""
    columns: Mapping[str, Any]

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
        FirstRow(row.id, row.messages or [{"role": "user", "content": row.prompt}], row.columns)
        for row in read_rows(data)
    ]
