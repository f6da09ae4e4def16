"""The first rows of a source, for what is said of its prompts before a job is queued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.contract.errors import RLLoopError
from engine.contract.sources.file_looks import once_a_file
from engine.contract.sources.questions import SourceConfig, read_rows

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
    """Up to a hundred; none of generated rows, and none where they cannot be read: that is refused
    elsewhere.
    """
    if data.source.startswith("embedded:") or not Path(data.source).is_absolute():
        return ()
    few = data.model_copy(update={"limit": min(data.limit or MOST, MOST)})
    try:
        return _read(Path(data.source), few.model_dump_json(include=set(SourceConfig.model_fields)))
    except RLLoopError:
        return ()


@once_a_file
def _read(path: Path, written: str) -> Sequence[FirstRow]:
    data = SourceConfig.model_validate_json(written)
    return [
        FirstRow(
            row["id"],
            row["messages"] or [{"role": "user", "content": row["prompt"]}],
            row["columns"],
        )
        for row in read_rows(path, data)
    ]
