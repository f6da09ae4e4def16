"""A run that is over, with checkpoints that are whole and hold no model, and scores of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.contract.registry import validate
from engine.contract.run_dir import COMPLETE, JobFile, RunDir, write_json
from engine.contract.scores import BenchScore
from tests.worker.queue.verbs import by_hand
from worker.attempt.scores import write_scores
from worker.db.connection import Database
from worker.queue.states import State
from worker.queue.submit import enqueue


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    lines = [{"id": f"q{i}", "prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(120)]
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
def run(db: Database, model: Path, rows: Path) -> RunDir:
    """Job 1: a run that is over, with checkpoints of steps 0, 2 and 4; step 2 is published."""
    config: dict[str, Any] = {
        "base": str(model),
        "tuning": "full",
        "data": {"source": str(rows)},
        "prompting": {"question_format": "Q: {prompt}\nA:"},
        "verifier": "gsm8k_flexible",
        "max_new_tokens": 24,
    }
    number = enqueue(db, "rl_run", config, actor="test")
    with by_hand(db) as hand:
        hand.run(State.SUCCEEDED)
    made = RunDir(db.settings.runs_dir / str(number))
    resolved = validate("rl_run", config).model_dump(mode="json")
    job_file = JobFile(
        job_id=number, kind="rl_run", config=resolved, seed=0, attempt=1, fence=1, cache_dir=""
    )
    write_json(made.attempt(1).job_file, job_file.model_dump())
    made.split.write_text("{}")
    for step in (0, 2, 4):
        shutil.copytree(model, made.checkpoint(step) / "model")
        write_json(made.checkpoint(step) / COMPLETE, {"step": step, "files": {"w": str(step)}})
    made.selected.symlink_to(made.checkpoint(2))
    return made


def scored(db: Database, job_id: int, step: int, score: float) -> None:
    """A step of run 1, as its job would tell it."""
    found = BenchScore(
        checkpoint=f"step {step}",
        base="model",
        run=1,
        step=step,
        bench="rows",
        split="rows",
        filter="exact",
        n=120,
        score=score,
        low=score - 0.05,
        high=score + 0.05,
        bench_hash="a" * 64,
    )
    event = {"type": "score", "seq": 1, "t": 1.0, "attempt": 1, "step": step}
    with db.write_tx() as conn:
        write_scores(conn, job_id, [event | {"score": found.model_dump()}])
