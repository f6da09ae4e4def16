"""From a checkpoint to the rows worth training on, and a run on them, through the real commands."""

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
from tests.engine.conftest import base_folder, base_recipe, sevens_file
from worker.settings import WorkerSettings

__all__ = ["base_folder", "base_recipe", "sevens_file"]


@pytest.mark.requirement("EX-08")
@pytest.mark.timeout(240)
def test_passk_writes_a_curriculum_that_a_run_draws_as_it_is(
    cockpit: Cockpit,
    tmp_path: Path,
    base_folder: Path,
    sevens_file: Path,
    base_recipe: dict[str, Any],
) -> None:
    """In its order; the same file with ids of other rows is refused with count and examples."""
    ids, path = tmp_path / "ids.txt", tmp_path / "run.yaml"
    how = ("-n", "4", "--temp", "1", "--max-new-tokens", "1", "--set", "threads=1")
    queued = cockpit("passk", str(base_folder), str(sevens_file), *how, "--out", str(ids))
    assert queued.returncode == 0, queued.stderr
    assert cockpit("drain").returncode == 0

    shown = json.loads(cockpit("show", "1", "--json").stdout)
    kept = ids.read_text("utf-8").splitlines()

    assert (shown["state"], shown["result"]["passk"]["kept"]) == ("succeeded", len(kept))
    assert {"pass@1", "rows by rate", "parsed", "kept"} <= {
        line[:14].strip() for line in cockpit("show", "1").stdout.splitlines()
    }
    application = create_app(AppSettings(), WorkerSettings())
    with TestClient(application, "http://127.0.0.1:8765", headers=bearer_here()) as browser:
        page = browser.get("/jobs/1").text
        assert browser.get("/new?kind=eval_rerun").status_code == 200
        assert browser.get("/jobs/1/passk/curriculum.txt").text == ids.read_text("utf-8")
        assert len(browser.get("/jobs/1/passk/passk.jsonl").text.splitlines()) == 120
    assert f"{len(kept)} of 120 rows" in page
    assert 'href="/jobs/1/passk/passk.jsonl"' in page

    data = {"source": str(sevens_file), "curriculum": "file", "curriculum_file": str(ids)}
    recipe = base_recipe | {"data": data, "max_steps": 1}
    path.write_text(yaml.safe_dump(recipe))
    assert cockpit("enqueue", "rl_run", str(path)).returncode == 0
    assert cockpit("drain").returncode == 0

    run = cockpit.data_dir / "runs" / "2"
    train = set(json.loads((run / "split.json").read_bytes())["train"])
    rows = (run / "rollouts" / "train-000001.jsonl").read_text("utf-8").splitlines()
    drawn = list(dict.fromkeys(json.loads(row)["id"] for row in rows))
    assert drawn == [id_ for id_ in kept if id_ in train][: recipe["tasks_per_step"]]

    ids.write_text("\n".join([*kept, "other/1", "other/2"]), "utf-8")
    refused = cockpit("enqueue", "rl_run", str(path), "--force")
    assert refused.returncode != 0
    assert f"2 of {len(kept) + 2} ids name no row of the data" in refused.stderr
    assert "'other/1', 'other/2'" in refused.stderr
