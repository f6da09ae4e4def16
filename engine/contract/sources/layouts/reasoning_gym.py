"""Entries of reasoning-gym: `question`, `answer` and the `metadata` that its scorers read."""

from __future__ import annotations

from typing import Any

from engine.contract.sources.layouts.reading import Part, Reading, has
from engine.contract.sources.values import Columns

NAME = "reasoning_gym"
WANTS = "question, answer, metadata.source_dataset"
_FIELDS = ("question", "answer", "metadata")


def recognise(row: Columns) -> Reading | None:
    """The answer is the entry, as the verifier of that name reads it: with the entry's number."""
    if not has(row, "question", "answer", "metadata.source_dataset"):
        return None
    answer = Part("answer", _entry)
    return Reading(NAME, "reasoning-gym entries", Part("question"), answer, asks_once=True)


def _entry(value: Any, row: Columns) -> Any:
    del value
    return {name: row.get(name) for name in _FIELDS}
