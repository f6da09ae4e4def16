"""`requant`, killed where it writes, goes on with the format that was not finished."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from engine.contract.run_dir import RunDir
from tests.engine.conftest import events_of
from tests.engine.killing import Point, killed_and_resumed, unbroken_run

POINTS = [
    (Point("engine.requant.merge:write_merged", 1, "after"), None),
    (Point("engine.requant.measured:write_rows", 2, "torn"), 1),
    (Point("engine.requant.formats:write", 2, "after"), 2),
    (Point("engine.run.checkpoint:_mark", 4, "before"), 2),
]
"""Each with the step that the attempt after it goes on from."""
TIMES = {"load_s", "tokens_per_s", "path"}


@pytest.fixture(scope="module")
def two_formats(requant_recipe: dict[str, Any]) -> dict[str, Any]:
    return requant_recipe | {"formats": ["int8", "fp8"]}


@pytest.fixture(scope="module")
def whole(two_formats: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return unbroken_run("requant", two_formats, tmp_path_factory.mktemp("whole"))


def weights(run: RunDir) -> dict[str, list[int]]:
    """Every tensor of every step, byte by byte."""
    return {
        f"{path.relative_to(run.root)}: {name}": tensor.view(torch.uint8).flatten().tolist()
        for path in run.checkpoints.rglob("*.safetensors")
        for name, tensor in load_file(path).items()
    }


def completions(run: RunDir) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.rollouts.glob("*.jsonl")}


def table(run: RunDir) -> list[dict[str, Any]]:
    result = json.loads(run.events.read_text("utf-8").splitlines()[-1])["result"]
    return [
        {name: value for name, value in one.items() if name not in TIMES}
        for one in result["requant"]["formats"]
    ]


@pytest.mark.parametrize(("point", "kept"), POINTS, ids=str)
def test_a_killed_job_goes_on_with_the_format_that_was_not_finished(
    point: Point, kept: int | None, two_formats: dict[str, Any], whole: RunDir, tmp_path: Path
) -> None:
    """While the base is merged, in the midst of a format's rows, behind a format that was written,
    and before the last one is marked complete: it ends with what an unbroken job has.
    """
    again = killed_and_resumed("requant", two_formats, tmp_path, point)

    assert [event["resumed_from"] for event in events_of(again, "started")] == [None, kept]
    assert weights(again) == weights(whole)
    assert completions(again) == completions(whole)
    assert table(again) == table(whole)
    assert not list(again.checkpoints.glob(".*"))
