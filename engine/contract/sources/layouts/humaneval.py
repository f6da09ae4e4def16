"""HumanEval: the head of a function, and the tests of its body."""

from __future__ import annotations

from typing import Any

from engine.contract.sources.layouts.reading import Part, Reading, has
from engine.contract.sources.values import Columns

NAME = "humaneval"
WANTS = "prompt, test, entry_point"
_FIELDS = ("prompt", "test", "entry_point")


def recognise(row: Columns) -> Reading | None:
    """The answer is the object that the verifier of that name reads."""
    if not has(row, *_FIELDS):
        return None
    worked = Part("canonical_solution") if has(row, "canonical_solution") else None
    ids = ("id", "task_id")
    return Reading(NAME, "HumanEval rows", Part("prompt"), Part("test", _tests), worked, ids)


def _tests(value: Any, row: Columns) -> Any:
    del value
    return {name: row.get(name) for name in _FIELDS}
