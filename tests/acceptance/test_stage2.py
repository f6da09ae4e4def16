"""`stage2_ab` through the real command line, queue and drain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from app.main import create_app
from app.web.settings import AppSettings
from tests.acceptance.conftest import Cockpit
from tests.door import bearer_here
from tests.engine.stage2.conftest import ab_recipe, shapes_file, vl_folder
from worker.settings import WorkerSettings

__all__ = ["ab_recipe", "shapes_file", "vl_folder"]


@pytest.mark.requirement("AB-01")
def test_a_stage2_job_is_queued_drained_and_shown(
    cockpit: Cockpit,
    tmp_path: Path,
    ab_recipe: dict[str, Any],
) -> None:
    """YAML alone chooses the trainer; the result names the checkpoint that F1 picked."""
    path = tmp_path / "ab.yaml"
    path.write_text(yaml.safe_dump(ab_recipe))

    queued = cockpit("enqueue", "stage2_ab", str(path))
    drained = cockpit("drain", timeout=240)
    shown = json.loads(cockpit("show", "1", "--json").stdout)

    assert queued.returncode == 0, queued.stderr
    assert drained.returncode == 0, drained.stderr
    assert shown["state"] == "succeeded"
    assert shown["result"]["steps"] == 6
    assert shown["result"]["selected_on"] == "eval_rollout_f1"
    assert shown["result"]["stage2"]["channel"] == "B"
    application = create_app(AppSettings(), WorkerSettings())
    with TestClient(application, "http://127.0.0.1:8765", headers=bearer_here()) as browser:
        page = browser.get("/jobs/1").text
        assert browser.get("/new?kind=stage2_ab").status_code == 200
    for title in ("Rollouts against the ground truth", "Losses by term", "Entries dropped"):
        assert title in page


def test_a_stage2_config_that_cannot_run_writes_nothing(cockpit: Cockpit, tmp_path: Path) -> None:
    """Field, problem and remedy on stderr; no job."""
    path = tmp_path / "ab.yaml"
    path.write_text("custom: {trainer_variant: stage2_ab_training}\nstage2_ab: {}\n")

    refused = cockpit("enqueue", "stage2_ab", str(path))

    assert refused.returncode != 0
    assert "stage2_ab.schedule.b_ratio" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert json.loads(cockpit("jobs", "--json").stdout) == []
