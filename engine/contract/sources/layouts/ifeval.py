"""IFEval: a prompt, and the instructions in it with their arguments."""

from __future__ import annotations

from typing import Any

from engine.contract.documents import UnreadableError, parse_json
from engine.contract.sources.layouts.reading import Part, Reading, has
from engine.contract.sources.values import Columns

NAME = "ifeval"
WANTS = "prompt, instruction_id_list, kwargs"


def recognise(row: Columns) -> Reading | None:
    """The answer is the object that the verifier of that name reads."""
    if not has(row, "prompt", "instruction_id_list", "kwargs"):
        return None
    answer = Part("instruction_id_list", _instructions)
    return Reading(NAME, "IFEval rows", Part("prompt"), answer, ids=("id", "key"))


def _instructions(value: Any, row: Columns) -> Any:
    """A table fills each set of arguments with null."""
    return {"instruction_id_list": _list(value), "kwargs": _arguments(row.get("kwargs"))}


def _list(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return parse_json(value)
    except UnreadableError:
        return value


def _arguments(value: Any) -> Any:
    given = _list(value)
    if not isinstance(given, list):
        return given
    return [
        {name: one for name, one in set_.items() if one is not None}
        if isinstance(set_, dict)
        else set_
        for set_ in map(_list, given)
    ]
