"""`cockpit passk`: what it queues, and what it refuses before."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.registry import validate
from engine.contract.run_dir import JobFile, RunDir, write_json
from tests.app.conftest import Said
from tests.app.night import queue
from worker.db.connection import Database

Cockpit = Callable[..., Said]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    lines = [{"name": f"q{i}", "question": f"{i}+1=", "gold": str(i + 1)} for i in range(120)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """What passes for a model's folder before it is loaded."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.fixture
def run(tmp_path: Path, model: Path, rows: Path) -> RunDir:
    """A run's directory with a published checkpoint."""
    made = RunDir(tmp_path / "runs" / "7")
    config: dict[str, Any] = {
        "base": str(model),
        "tuning": "full",
        "data": {
            "source": str(rows),
            "prompt_field": "question",
            "answer_field": "gold",
            "id_field": "name",
        },
        "prompting": {"question_format": "Q: {prompt}\nA:"},
        "verifier": "gsm8k",
        "temp": 0.9,
        "max_new_tokens": 24,
    }
    resolved = validate("rl_run", config).model_dump(mode="json")
    made.attempt(1).root.mkdir(parents=True)
    job_file = JobFile(
        job_id=7, kind="rl_run", config=resolved, seed=0, attempt=1, fence=1, cache_dir=""
    )
    write_json(made.attempt(1).job_file, job_file.model_dump())
    shutil.copytree(model, made.checkpoint(3) / "model")
    made.split.write_text("{}")
    made.selected.symlink_to(made.checkpoint(3))
    return made


def resolved(said: Said) -> dict[str, Any]:
    assert said.code == 0, said.err
    return dict(json.loads(said.out)["config"])


def test_rows_are_asked_and_judged_as_in_the_run_of_the_checkpoint(
    cockpit: Cockpit, run: RunDir, rows: Path
) -> None:
    """Form of the prompt, verifier, limits and the names of fields; what is said wins."""
    base = resolved(cockpit("passk", str(run.root), str(rows), "--dry-run", "--json"))
    other = resolved(
        cockpit(
            *("passk", str(run.root), str(rows), "-n", "16", "--verifier", "math", "--limit", "9"),
            *("--template", "gsm8k_cot", "--keep", "0.2", "0.8", "--temp", "1", "--dry-run"),
            *("--max-new-tokens", "32", "--out", "picked.txt", "--set", "seed=3", "--json"),
        )
    )

    assert base["prompting"]["question_format"] == "Q: {prompt}\nA:"
    assert (base["verifier"], base["temp"], base["max_new_tokens"]) == ("gsm8k", 0.9, 24)
    assert (base["samples"], base["keep"]) == (8, [0.1, 0.9])
    fields = ("prompt_field", "answer_field", "id_field", "limit")
    assert [base["data"][field] for field in fields] == ["question", "gold", "name", None]
    assert (other["samples"], other["verifier"], other["keep"]) == (16, "math", [0.2, 0.8])
    assert (other["data"]["limit"], other["temp"], other["max_new_tokens"]) == (9, 1.0, 32)
    assert other["prompting"]["template"] == "gsm8k_cot"
    assert other["curriculum_out"] == str(Path.cwd() / "picked.txt")
    assert other["seed"] == 3


def test_a_number_is_what_that_job_published(cockpit: Cockpit, db: Database, rows: Path) -> None:
    """One that has no checkpoint is named with its state, and nothing is queued."""
    job = queue(db)

    said = cockpit("passk", str(job), str(rows))

    assert said.code == 2
    assert f"CHECKPOINT: is a job without a checkpoint (it is queued) (got '{job}')" in said.err
    assert len(json.loads(cockpit("jobs", "--json").out)) == 1


def test_an_embedded_model_does_not_read_a_file(cockpit: Cockpit, rows: Path) -> None:
    """As a run is refused that would train on it."""
    said = cockpit("passk", "embedded:qwen3-tiny", str(rows))

    assert said.code == 2
    assert "only knows the characters of embedded:addition" in said.err


def test_a_place_for_the_file_that_cannot_be_is_said_before_the_job_runs(
    cockpit: Cockpit, tmp_path: Path
) -> None:
    """A file that is there is replaced, and that is said too."""
    there = tmp_path / "ids.txt"
    there.write_text("old\n")
    ask = ("passk", "embedded:qwen3-tiny", "embedded:addition", "--out")

    nowhere = cockpit(*ask, str(tmp_path / "no" / "ids.txt"))
    replaced = cockpit(*ask, str(there))

    assert nowhere.code == 2
    assert "curriculum_out: cannot be written" in nowhere.err
    assert replaced.code == 0
    assert f"{there} is there and will be replaced" in replaced.err
    assert there.read_text() == "old\n"
