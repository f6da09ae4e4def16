"""From a run with a gain to its quantized checkpoint with scores, through the real commands."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from app.main import create_app
from app.web.settings import AppSettings
from engine.contract.run_dir import RunDir
from engine.contract.scores import BenchScore
from tests.acceptance.conftest import Cockpit
from tests.door import bearer_here
from tests.engine.conftest import base_folder, base_recipe, events_of, sevens_file
from worker.settings import WorkerSettings

__all__ = ["base_folder", "base_recipe", "sevens_file"]


@pytest.mark.requirement("JB-11")
@pytest.mark.timeout(240)
def test_a_gain_is_quantized_and_scored_and_a_pool_that_rose_is_not(
    cockpit: Cockpit, tmp_path: Path, base_recipe: dict[str, Any]
) -> None:
    """One drain: a run that gains, one whose pool alone rises, and the requant behind the first."""
    unsolvable = tmp_path / "unsolvable.jsonl"
    rows = [{"id": f"u{i}", "prompt": f"{i:03d}=", "answer": "77"} for i in range(500, 700)]
    unsolvable.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    bench = {"name": "never", "source": str(unsolvable), "verifier": "exact"}
    gains = base_recipe | {"requant": {"formats": ["int8"]}}
    for name, recipe in {
        "gains": gains,
        "pool": gains | {"heldout": [bench], "decide": "never"},
    }.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(recipe))
        queued = cockpit("enqueue", "rl_run", str(tmp_path / f"{name}.yaml"), "--name", name)
        assert queued.returncode == 0, queued.stderr

    assert cockpit("drain").returncode == 0

    shown = [json.loads(cockpit("show", str(n), "--json").stdout) for n in (1, 2, 3)]
    assert [one["kind"] for one in shown] == ["rl_run", "rl_run", "requant"]
    assert [one["result"].get("verdict") for one in shown[:2]] == ["gain", "pool only"]
    assert (shown[2]["state"], shown[2]["after"]) == ("succeeded", [1])
    assert cockpit("show", "4").returncode != 0
    requant = RunDir(cockpit.data_dir / "runs" / "3")
    scores = [BenchScore.model_validate(event["score"]) for event in events_of(requant, "score")]
    step = shown[0]["result"]["published_step"]
    assert [one.checkpoint for one in scores] == [f"step {step} bf16", f"step {step} int8"]
    assert {one.run for one in scores} == {1}
    board = json.loads(cockpit("leaderboard", "--run", "1", "--bench", "run-1", "--json").stdout)
    assert {line["checkpoint"] for line in board["lines"]} >= {one.checkpoint for one in scores}
    assert "requant" in cockpit("show", "1").stdout
    assert "job 3, after the gain" in cockpit("show", "1").stdout
    assert "the verdict is pool only" in cockpit("show", "2").stdout
    assert "left in 16 bit: " in cockpit("show", "3").stdout
    application = create_app(AppSettings(), WorkerSettings())
    with TestClient(application, "http://127.0.0.1:8765", headers=bearer_here()) as browser:
        pages = {n: browser.get(f"/jobs/{n}").text for n in (1, 2, 3)}
        report = browser.get(f"/report?date={_morning_after(cockpit, 1)}").text
    assert '<a href="/jobs/3">job 3, after the gain</a>' in pages[1]
    assert "none: the verdict is pool only, and it follows a gain alone" in pages[2]
    assert "model.embed_tokens.weight" in pages[3]
    assert "requant: job 3, after the gain" in report
    assert "requant: none: the verdict is pool only" in report


def _morning_after(cockpit: Cockpit, job: int) -> datetime.date:
    """Of the night, noon to noon, in which the job ended; in the lane's zone, UTC."""
    [finished] = events_of(RunDir(cockpit.data_dir / "runs" / str(job)), "finished")
    ended = datetime.datetime.fromtimestamp(finished["t"], datetime.UTC)
    return (ended + datetime.timedelta(hours=12)).date()
