"""`cockpit merge` and `cockpit enqueue --from`: a job's number is its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.contract.run_dir import RunDir, write_json
from tests.app.conftest import Said
from tests.app.night import night, queue
from worker.db.connection import Database
from worker.read import jobs

Cockpit = Callable[..., Said]


@pytest.fixture
def run(db: Database) -> RunDir:
    """A job that published step 6, a whole model, and has step 2 too."""
    number = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        write_json(attempt.run.split, {})
        for step in (2, 6):
            folder = attempt.run.checkpoint(step)
            write_json(folder / "model/config.json", {"model_type": "qwen3"})
            (folder / "model/model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
            write_json(folder / "complete.json", {"step": step, "files": {}})
        attempt.run.selected.symlink_to(Path("checkpoints") / attempt.run.checkpoint(6).name)
        attempt.finish(verdict="gain", selected_step=6, published_step=6)
    return RunDir(db.settings.runs_dir / str(number))


@pytest.mark.parametrize(
    ("named", "code", "said"),
    [
        ("99", 3, "job 99"),
        ("seven", 2, "JOB: names no job (got 'seven'); write 7 for what job 7 published"),
        ("1@4", 2, "it has steps 2, 6"),
    ],
)
def test_a_checkpoint_that_there_is_not_is_refused_before_anything_is_loaded(
    cockpit: Cockpit, run: RunDir, tmp_path: Path, named: str, code: int, said: str
) -> None:
    """What happened, which value, the way out; and no folder."""
    refused = cockpit("merge", named, "--to", str(tmp_path / "out"))

    assert refused.code == code
    assert said in refused.err
    assert not (tmp_path / "out").exists()


def test_a_job_without_a_checkpoint_and_a_folder_in_use_are_refused(
    cockpit: Cockpit, db: Database, run: RunDir, tmp_path: Path
) -> None:
    """Nothing that is there is written over."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("x")

    empty = cockpit("merge", str(queue(db, lr=1e-5)), "--to", str(tmp_path / "out"))
    taken = cockpit("merge", "1", "--to", str(tmp_path / "mine"))

    assert (empty.code, taken.code) == (2, 2)
    assert "is a job without a checkpoint (it is queued)" in empty.err
    assert "--to: exists already and is not an empty folder" in taken.err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]


@pytest.mark.parametrize(("named", "step"), [("1", 6), ("1@2", 2)])
def test_a_run_goes_on_from_the_checkpoint_that_is_named(
    cockpit: Cockpit, db: Database, run: RunDir, named: str, step: int
) -> None:
    """With the settings of the other, but its warm-up, and those that are set."""
    before = jobs.get_job(db, 1)

    done = cockpit("enqueue", "--from", named, "--set", "lr=1e-6", "--dry-run", "--json")

    assert done.code == 0, done.err
    config = json.loads(done.out)["config"]
    assert config["base"] == str(run.checkpoint(step) / "model")
    assert (config["lr"], config["warmup"]) == (1e-6, None)
    kept = {name: config[name] for name in ("tuning", "max_steps", "kl_coef", "data")}
    assert kept == {name: before.config[name] for name in kept}


def test_enqueue_asks_for_a_kind_or_a_run_to_go_on_from(cockpit: Cockpit, run: RunDir) -> None:
    """One of them, and a config for a kind."""
    assert "KIND: is missing" in cockpit("enqueue").err
    assert "FILE: is missing" in cockpit("enqueue", "rl_run").err
    assert (
        "is what the run has that --from names" in cockpit("enqueue", "rl_run", "--from", "1").err
    )
