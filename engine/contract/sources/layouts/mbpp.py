"""MBPP, whole (`text`) and sanitized (`prompt`): a task in words, and statements that test it."""

from __future__ import annotations

from typing import Any

from engine.contract.sources.layouts.reading import Part, Reading, first_of, has
from engine.contract.sources.values import Columns

NAME = "mbpp"
WANTS = "text or prompt, and test_list"


def recognise(row: Columns) -> Reading | None:
    """The question shows its tests, as the authors ask it: they name the function."""
    task = first_of(row, ("text", "prompt"))
    if task is None or not has(row, "test_list"):
        return None
    worked = Part("code") if has(row, "code") else None
    ids = ("id", "task_id")
    asked, tests = Part(task, _asked), Part("test_list", _tests)
    return Reading(NAME, "MBPP rows", asked, tests, worked, ids)


def _asked(value: Any, row: Columns) -> Any:
    tests = row.get("test_list")
    if not isinstance(value, str) or not isinstance(tests, list):
        return value
    return f"{value}\nYour code should pass these tests:\n\n" + "\n".join(map(str, tests))


def _tests(value: Any, row: Columns) -> Any:
    setup = row.get("test_setup_code")
    imports = row.get("test_imports")
    if not setup and isinstance(imports, list):
        setup = "\n".join(map(str, imports))
    return {"test_list": value, "test_setup_code": setup or ""}
