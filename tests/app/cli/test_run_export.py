"""`cockpit export`: a run leaves as files that other programs read."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from app.web import run_export
from tests.app.conftest import Said
from tests.app.night import night, queue
from worker.db.connection import Database

pytestmark = pytest.mark.requirement("AP-04")
Cockpit = Callable[..., Said]
ROW = {"prompt": "1+1?", "reason": "correct", "reward": 1.0, "success": True, "truncated": False}


@pytest.fixture
def run(db: Database) -> int:
    """Made five steps, was killed, went on from step 3 and stopped at step 4."""
    number = queue(db, name="mine")
    with night(db) as lane:
        attempt = lane.start()
        folder = attempt.run.rollouts
        folder.mkdir(parents=True, exist_ok=True)
        for step in range(1, 6):
            attempt.add("metric", step=step, values={"train/reward": step / 10})
            line = json.dumps({**ROW, "id": f"q{step}", "text": f"first {step}"})
            (folder / f"train-{step:06d}.jsonl").write_text(line + "\n")
        attempt.write("progress", phase="train", step=5, max_steps=5)
        attempt.write("started", resumed_from=3)
        attempt.add("metric", step=4, values={"train/reward": 0.9})
        attempt.write("progress", phase="train", step=4, max_steps=5)
        line = json.dumps({**ROW, "id": "q4", "text": "=again"})
        (folder / "train-000004.jsonl").write_text(line + "\n")
        attempt.finish()
    return number


def read(path: Path) -> Sequence[Mapping[str, Any]]:
    if path.suffix == ".csv":
        with path.open(encoding="utf-8") as stream:
            return list(csv.DictReader(stream))
    if path.suffix == ".parquet":
        rows: list[Mapping[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
        return rows
    found: list[Mapping[str, Any]] = json.loads(path.read_text("utf-8"))
    return found


@pytest.mark.parametrize("form", ["csv", "parquet", "json"])
def test_a_run_leaves_as_tables_without_the_steps_that_a_resume_made_void(
    cockpit: Cockpit, run: int, tmp_path: Path, form: str
) -> None:
    """Step 5 of the first attempt was never part of it; step 4 is the second attempt's."""
    said = cockpit("export", str(run), "--to", str(tmp_path / "out"), "--format", form)

    assert said.code == 0, said.err
    assert said.out.strip() == str(tmp_path / "out")
    metrics = read(tmp_path / "out" / f"metrics.{form}")
    rewards = [
        (int(row["step"]), float(row["value"]))
        for row in metrics
        if row["series"] == "train/reward"
    ]
    assert rewards == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.9)]
    samples = read(tmp_path / "out" / f"samples.{form}")
    written = [str(row["completion"]).removeprefix("'") for row in samples]
    assert written == ["first 1", "first 2", "first 3", "=again"]
    assert (tmp_path / "out" / f"scores.{form}").exists()
    about = json.loads((tmp_path / "out" / "run.json").read_text("utf-8"))
    assert (about["name"], about["config"]["lr"]) == ("mine", 3e-4)
    assert str(tmp_path) not in json.dumps(about["result"])


def test_a_folder_that_holds_something_is_left_as_it_is(
    cockpit: Cockpit, run: int, tmp_path: Path
) -> None:
    """By name, with the way out."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")

    said = cockpit("export", str(run), "--to", str(folder))

    assert said.code == 2
    assert "is not an empty folder" in said.err
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_an_export_that_fails_midway_leaves_nothing(
    cockpit: Cockpit, run: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a disk that fills up ends it."""

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")
        yield

    monkeypatch.setattr(run_export, "every_sample", full)

    said = cockpit("export", str(run), "--to", str(tmp_path / "into" / "out"))

    assert said.code == 2
    assert "No space left on device" in said.err
    assert [*(tmp_path / "into").iterdir()] == []
