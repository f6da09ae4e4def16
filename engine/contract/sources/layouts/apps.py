"""APPS: a problem in words, and inputs with their outputs."""

from __future__ import annotations

import json
from typing import Any

from engine.contract.documents import UnreadableError, parse_json
from engine.contract.sources.bad_rows import BadRowError
from engine.contract.sources.layouts.reading import Part, Reading, has
from engine.contract.sources.values import Columns

NAME = "apps"
WANTS = "question, input_output"


def recognise(row: Columns) -> Reading | None:
    """The first of its solutions is the worked one."""
    if not has(row, "question", "input_output"):
        return None
    worked = Part("solutions", _first) if has(row, "solutions") else None
    asked, tests = Part("question", _asked), Part("input_output", _tests)
    return Reading(NAME, "APPS rows", asked, tests, worked, ("id", "problem_id"))


def _asked(value: Any, row: Columns) -> Any:
    """With the head of the function that it is to have, where there is one."""
    starter = row.get("starter_code")
    if not isinstance(value, str) or not isinstance(starter, str) or not starter.strip():
        return value
    return f"{value}\n\n{starter}"


def _tests(value: Any, row: Columns) -> Any:
    del row
    if isinstance(value, str) and not value.strip():
        raise BadRowError("has no tests: its input_output is empty", "leave the row out")
    return value


def _first(value: Any, row: Columns) -> Any:
    del row
    if isinstance(value, str):
        try:
            value = parse_json(value) if value else None
        except UnreadableError:
            return None
    match value:
        case [str(first), *_]:
            return first
        case dict() | list():
            return json.dumps(value, ensure_ascii=False)
    return None
