"""A run that gets nowhere says so while it goes on: by the real CLI, in the report of the night."""

from __future__ import annotations

import html
import json
import re
import time
from pathlib import Path

import pytest

from tests.acceptance.conftest import Cockpit
from worker.db.connection import open_database
from worker.report.snapshot import latest_morning
from worker.settings import WorkerSettings

NOTHING_TO_RANK = """\
base: embedded:qwen3-tiny
tuning: full
threads: 1
data: {source: "embedded:addition", limit: 200}
tasks_per_step: 4
group_k: 4
max_steps: 12
heldout_every: 6
force_headroom: true          # random weights solve nothing
guard: {collapse: false}
warnings: {window: 5}
"""


@pytest.mark.requirement("EX-25")
def test_a_warning_stands_in_the_run_and_in_the_report_with_completions(
    cockpit: Cockpit, tmp_path: Path
) -> None:
    """Its step, its numbers, what to do, and three completions of that step."""
    recipe, file = tmp_path / "run.yaml", tmp_path / "report.html"
    recipe.write_text(NOTHING_TO_RANK)
    assert cockpit("enqueue", "rl_run", str(recipe), "--name", "tied").returncode == 0
    assert cockpit("drain").returncode == 0

    result = json.loads(cockpit("show", "1", "--json").stdout)["result"]
    [alert] = [one for one in result["alerts"] if one["code"] == "TIES_HIGH"]
    said = f"TIES_HIGH at step 12: {alert['text']}"

    assert re.search(r"in \d+% of the groups .*because \d% are right: .*; choose easier", said)
    assert alert["numbers"]["now"] >= 0.7
    assert len(alert["samples"]) == 3
    assert said in cockpit("show", "1").stdout
    with open_database(WorkerSettings()) as database:
        morning = str(latest_morning(database, time.time()))
    printed = cockpit("report", "--date", morning, "--html", str(file)).stdout
    assert f"job 1 tied: {said}" in printed
    text = html.unescape(file.read_text())
    assert f"step 12: {alert['text']}" in text
    assert all(one["prompt"] in text for one in alert["samples"])
    assert "3 completions that show it" in text
