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
    Point("engine.evaluate.journal:Journal.add", 3),
    Point("engine.evaluate.journal:Journal.add", 4, "after"),
    Point("engine.evaluate.journal:write_rows", 1, "torn"),
    Point("engine.evaluate.recorder:EvalRecorder.mark", 3, "after"),
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


SCORED = [
    Point("engine.evaluate.journal:Journal.add", 4, "after"),
    Point("engine.evaluate.journal:write_rows", 2, "torn"),
    Point("engine.evaluate.recorder:EvalRecorder.tell", 2, "after"),
]


@pytest.fixture(scope="module")
def benched(
    eval_recipe: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Two models on two benches of the same rows."""
    own = {key: eval_recipe[key] for key in ("base", "threads", "rollout_batch")}
    rows = {"source": eval_recipe["data"]["source"], "verifier": "exact", "max_new_tokens": 1}
    return own | {
        "checkpoints": [eval_recipe["base"], "embedded:qwen3-tiny"],
        "benches": [
            rows | {"name": "few", "limit": 30},
            rows | {"name": "drawn", "temp": 1.0, "samples": 2},
        ],
    }


@pytest.fixture(scope="module")
def scored(benched: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return unbroken_run("eval_rerun", benched, tmp_path_factory.mktemp("scored"))


@pytest.mark.requirement("EX-13")
@pytest.mark.parametrize("point", SCORED, ids=str)
def test_a_killed_evaluation_tells_every_score_once(
    point: Point, benched: dict[str, Any], scored: RunDir, tmp_path: Path
) -> None:
    """Those that no resume has made void are those of an unbroken one, and so are the files."""
    again = killed_and_resumed("eval_rerun", benched, tmp_path, point)

    assert counting(again) == counting(scored)
    assert len(counting(scored)) == 2 * (1 + 2)
    for path in scored.rollouts.glob("*.jsonl"):
        assert (again.rollouts / path.name).read_bytes() == path.read_bytes()
    assert not list(again.rollouts.glob("parts/*"))


def counting(run: RunDir) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in run.events.read_text("utf-8").splitlines():
        event = json.loads(line)
        if event["type"] == "started":
            kept = event["resumed_from"]
            found = [one for one in found if kept is not None and one["step"] <= kept]
        elif event["type"] == "score":
            found.append({"step": event["step"], "score": event["score"]})
    return found
