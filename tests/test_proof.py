"""The proof tooling itself: rows, marks and skips."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("requirements", ROOT / "tools/requirements.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_row_says_what_would_break_it() -> None:
    """A row is an id, our words, a break and a state."""
    with (ROOT / "docs/requirements.toml").open("rb") as stream:
        rows = tomllib.load(stream)["row"]

    assert len({row["id"] for row in rows}) == len(rows)
    assert all(row["text"] and row["breaks"] for row in rows)
    assert {row["state"] for row in rows} <= {"open", "finished"}


def test_a_finished_row_needs_a_passing_test_and_no_failing_one(tool: ModuleType) -> None:
    """A claim without a proof is reported by name."""
    rows = [{"id": name, "text": name, "state": "finished"} for name in ("A", "B", "C")]
    outcomes = {"A": {"t1": "passed"}, "B": {"t2": "passed", "t3": "failed"}}

    lines, unproven = tool.table(rows, outcomes)

    assert unproven == ["B", "C"]
    assert lines[-1] == "1 of 3 rows proven"


def test_an_open_row_is_not_counted_even_with_a_passing_test(tool: ModuleType) -> None:
    """Work in progress claims nothing."""
    lines, unproven = tool.table(
        [{"id": "A", "text": "a", "state": "open"}], {"A": {"t": "passed"}}
    )

    assert unproven == []
    assert lines[-1] == "0 of 1 rows proven"
