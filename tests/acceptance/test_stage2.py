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
from engine.contract.sources.records import read_records
from tests.acceptance.conftest import Cockpit
from tests.door import bearer_here
from tests.engine.stage2.conftest import (
    ab_recipe,
    changed,
    matching_recipe,
    shapes_file,
    vl_folder,
)
from worker.settings import WorkerSettings

__all__ = ["ab_recipe", "matching_recipe", "shapes_file", "vl_folder"]


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


@pytest.mark.requirement("RM-01")
def test_a_rollout_matching_job_is_queued_drained_and_shown(
    cockpit: Cockpit, tmp_path: Path, matching_recipe: dict[str, Any]
) -> None:
    """The other trainer, by its variant alone; what it would not read is refused by name."""
    path = tmp_path / "matching.yaml"
    path.write_text(yaml.safe_dump(changed(matching_recipe, training__max_steps=2)))

    refused = cockpit("enqueue", "stage2_ab", str(path))
    queued = cockpit("enqueue", "rollout_matching_sft", str(path))
    drained = cockpit("drain", timeout=240)
    shown = json.loads(cockpit("show", "1", "--json").stdout)

    assert "set trainer_variant: stage2_ab_training" in refused.stderr
    assert queued.returncode == 0, queued.stderr
    assert drained.returncode == 0, drained.stderr
    assert shown["state"] == "succeeded"
    assert shown["result"]["steps"] == 2
    application = create_app(AppSettings(), WorkerSettings())
    with TestClient(application, "http://127.0.0.1:8765", headers=bearer_here()) as browser:
        page = browser.get("/jobs/1").text
    for title in ("Losses by term", "Entries dropped", "soft CE of coords"):
        assert title in page


@pytest.mark.requirement("EX-26")
def test_a_stage2_checkpoint_is_scored_on_coco_pictures_from_the_command_line(
    cockpit: Cockpit, tmp_path: Path, ab_recipe: dict[str, Any], shapes_file: Path
) -> None:
    """`cockpit eval 1@all --bench detection`: asked as the run asked, one row a step in the
    leaderboard, answers on the job's page.
    """
    path = tmp_path / "ab.yaml"
    path.write_text(yaml.safe_dump(ab_recipe))
    source = as_coco(shapes_file, tmp_path / "instances.json")
    cockpit("enqueue", "stage2_ab", str(path))
    cockpit("drain", timeout=240)

    queued = cockpit(
        "eval", "1@all", "--bench", "detection", "--source", str(source), "--limit", "6"
    )
    drained = cockpit("drain", timeout=240)
    board = json.loads(cockpit("leaderboard", "--json").stdout)

    assert queued.returncode == 0, queued.stderr
    assert drained.returncode == 0, drained.stderr
    shown = json.loads(cockpit("show", "2", "--json").stdout)
    assert shown["state"] == "succeeded", shown
    assert shown["config"]["detection"][0]["max_new_tokens"] == 6
    labels = [(one["label"], one["run"]) for one in shown["config"]["checkpoints"]]
    assert labels[0] == ("step 0", 1)
    assert {one["metric"] for one in shown["result"]["scores"]} >= {"mAP", "F1@0.5", "mean IoU"}
    assert "detection" in json.dumps(board)
    application = create_app(AppSettings(), WorkerSettings())
    with TestClient(application, "http://127.0.0.1:8765", headers=bearer_here()) as browser:
        assert "detection" in browser.get("/jobs/2").text
        assert browser.get("/jobs/2/samples").status_code == 200
        assert "mAP" in browser.get("/leaderboard").text


def as_coco(records: Path, target: Path) -> Path:
    """The same scenes as a COCO file."""
    found = read_records(records)
    names = sorted({one.desc for record in found for one in record.objects})
    images, annotations = [], []
    for number, record in enumerate(found, 1):
        width, height = record.size
        images.append(
            {"id": number, "file_name": str(record.images[0]), "width": width, "height": height}
        )
        for one in record.objects:
            x1, y1, x2, y2 = (k / 999 for k in one.box)
            box = [x1 * width, y1 * height, (x2 - x1) * width, (y2 - y1) * height]
            category = names.index(one.desc)
            annotations.append({"image_id": number, "category_id": category, "bbox": box})
    categories = [{"id": number, "name": name} for number, name in enumerate(names)]
    told = {"images": images, "annotations": annotations, "categories": categories}
    target.write_text(json.dumps(told))
    return target


def test_a_stage2_config_that_cannot_run_writes_nothing(cockpit: Cockpit, tmp_path: Path) -> None:
    """Field, problem and remedy on stderr; no job."""
    path = tmp_path / "ab.yaml"
    path.write_text("custom: {trainer_variant: stage2_ab_training}\nstage2_ab: {}\n")

    refused = cockpit("enqueue", "stage2_ab", str(path))

    assert refused.returncode != 0
    assert "stage2_ab.schedule.b_ratio" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert json.loads(cockpit("jobs", "--json").stdout) == []
