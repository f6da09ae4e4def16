"""Which columns of a job's rows are read as what, whether or not the rest of its config holds.

Knows no kind by name: a kind says which setting names its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from engine.contract.errors import RLLoopError
from engine.contract.kind import Kind
from engine.contract.known import setting_of
from engine.contract.sources.first_rows import mapped
from engine.contract.sources.questions import SourceConfig, found_files, survey

LOOKED_THROUGH_BYTES = 64 * 2**20
"""Files up to here are counted while a form is filled in."""


class RowsView(NamedTuple):
    """The rows of a job as they will be read."""

    section: str
    """The section of the config that describes them."""
    columns: Sequence[str]
    prompt: str
    """The column of the question, as it is read now."""
    answer: str | None
    rows: int | None
    """None where they are too many to count now, or some cannot be read."""
    said: Sequence[str]
    """How they are read, and what is left out."""


def rows_view(kind: Kind, raw: Mapping[str, Any]) -> RowsView | None:
    """None of kinds whose rows are no table of columns, and where there is nothing to read."""
    source = _source_of(kind, raw)
    found = mapped(source) if source is not None else None
    if kind.rows is None or source is None or found is None:
        return None
    rows, said = _counted(source)
    section = kind.rows.rpartition(".")[0]
    return RowsView(section, found.columns, found.prompt, found.answer, rows, said)


def _source_of(kind: Kind, raw: Mapping[str, Any]) -> SourceConfig | None:
    section = (kind.rows or "").rpartition(".")[0]
    field = kind.config.model_fields.get(section)
    model = field.annotation if field is not None else None
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return None
    given = setting_of(raw, section)
    if not issubclass(model, SourceConfig) or not isinstance(given, Mapping):
        return None
    known = {name: value for name, value in given.items() if name in SourceConfig.model_fields}
    try:
        return SourceConfig.model_validate(known)
    except (ValidationError, ValueError):
        return None


def _counted(source: SourceConfig) -> tuple[int | None, Sequence[str]]:
    try:
        files: Sequence[Path] = found_files(source)
        if sum(path.stat().st_size for path in files) > LOOKED_THROUGH_BYTES:
            return None, ()
        found = survey(source)
    except (RLLoopError, OSError):
        return None, ()
    return found.rows, (*found.said, *found.left_out)
