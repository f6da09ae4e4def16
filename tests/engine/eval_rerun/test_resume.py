"""`eval_rerun`, killed where it writes, goes on to the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.contract.run_dir import RunDir
from engine.eval_rerun.rows import CURRICULUM, RESULTS
from tests.engine.killing import Point, killed_and_resumed, unbroken_run

POINTS = [
    Point("engine.eval_rerun.journal:write_rows", 3, "torn"),
    Point("engine.eval_rerun.journal:write_rows", 4, "after"),
    Point("engine.eval_rerun.eval_rerun:_Run._checkpoint", 3, "after"),
    Point("engine.eval_rerun.rows:write_atomic", 1),
]


@pytest.fixture(scope="module")
def whole(eval_recipe: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return unbroken_run("eval_rerun", eval_recipe, tmp_path_factory.mktemp("whole"))


@pytest.mark.requirement("EX-08")
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_killed_run_ends_with_the_files_of_an_unbroken_one(
    point: Point, eval_recipe: dict[str, Any], whole: RunDir, tmp_path: Path
) -> None:
    """In the middle of a step's rollouts, between steps, and between its two files."""
    again = killed_and_resumed("eval_rerun", eval_recipe, tmp_path, point)

    for name in (RESULTS, CURRICULUM):
        assert (again.root / name).read_bytes() == (whole.root / name).read_bytes()
    ends = [run.events.read_text("utf-8").splitlines()[-1] for run in (again, whole)]
    killed, unbroken = (json.loads(line)["result"]["passk"] for line in ends)
    assert killed == unbroken
    assert sorted(path.name for path in again.rollouts.glob("*.jsonl")) == sorted(
        path.name for path in whole.rollouts.glob("*.jsonl")
    )
