"""A config over three seeds, as a user runs it: the real CLI, a real drain, real tiny models."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from engine.models import tiny
from tests.acceptance.conftest import Cockpit

CONFIG: dict[str, Any] = {
    "tuning": "full",
    "threads": 1,
    "group_k": 8,
    "tasks_per_step": 8,
    "lr": 3e-3,
    "max_steps": 4,
    "heldout_every": 2,
    "heldout_frac": 0.5,
    "heldout_temp": 1.0,
    "max_new_tokens": 1,
    "report_min": 10,
    "force_headroom": True,
    "seeds": [0, 1, 2],
}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Random weights of its own that learn to answer 7 within a few steps, some seeds sooner."""
    base, rows = tmp_path / "base", tmp_path / "sevens.jsonl"
    tiny.build_model(seed=3).save_pretrained(base)
    tiny.build_tokenizer().save_pretrained(base)
    lines = [json.dumps({"prompt": f"{i:03d}=", "answer": "7"}) for i in range(120)]
    rows.write_text("\n".join(lines))
    path = tmp_path / "sevens.yaml"
    path.write_text(json.dumps(CONFIG | {"base": str(base), "data": {"source": str(rows)}}))
    return path


@pytest.mark.requirement("EX-24")
def test_three_seeds_of_one_config_become_one_group_with_mean_and_interval(
    cockpit: Cockpit, recipe: Path
) -> None:
    """The group's numbers are those of its three runs, which held out the same rows."""
    assert cockpit("enqueue", "rl_run", str(recipe)).returncode == 0
    assert cockpit("drain", timeout=300).returncode == 0

    runs = [json.loads(cockpit("show", str(number), "--json").stdout) for number in (1, 2, 3)]
    shown = cockpit("show", "2").stdout

    assert {run["state"] for run in runs} == {"succeeded"}
    assert [run["config"]["seed"] for run in runs] == [0, 1, 2]
    splits = {run["result"]["upstream"]["corpus"]["split"] for run in runs}
    assert len(splits) == 1
    scores = [run["result"]["heldout_after"] for run in runs]
    assert len(set(scores)) > 1
    ends = f"between {100 * min(scores):.1f} % and {100 * max(scores):.1f} %"
    assert f"3 runs of this config with seeds 0, 1, 2 ended {ends}" in shown
    assert f"On average {100 * mean(scores):.1f} % (95 % interval between 3 runs" in shown
