"""Killed anywhere and resumed, a run ends as if nothing had happened, to the bit."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.run_dir import RunDir
from tests.engine.conftest import add_attempt, events_of
from tests.engine.killing import Point, attempt

NewAttempt = Callable[..., RunDir]

LAST = 6

SAMPLER = "engine.sampling.hf:HFSampler"
LOOP = "engine.rl.loop:RLLoop"
RECORDER = "engine.rl.recorder:LoopRecorder"

SHORT = [
    Point(f"{SAMPLER}._append", 9),
    Point("engine.rewards.adapter:RewardAdapter.judge_all", 14),
    Point("torch:Tensor.backward", 3, "after"),
    Point("torch.optim:AdamW.step", 2, "after"),
    Point("engine.models.policy:Policy.save", 4, "after"),
    Point("engine.evaluate.gate:Gate._score", 3),
]
"""One for each phase; the others are as good, and take a minute longer."""

LONG = [
    # before anything trains
    Point("engine.rl.parts:freeze", 1, "after"),
    Point("engine.run.checkpoint:_mark", 1),
    Point("engine.run.checkpoint:_mark", 1, "after"),
    # sampling, and the journal behind it
    Point(f"{SAMPLER}._decode", 2),
    Point(f"{SAMPLER}._rollout", 150, "after"),
    Point("engine.rl.journal:write_rows", 2, "torn"),
    Point("engine.rl.journal:write_rows", 3, "after"),
    Point("engine.run.recorder:write_rows", 2, "torn"),
    # verifying
    Point("engine.rl.batch:BatchSource._judge", 1),
    Point("engine.rl.batch:BatchSource._sort_in", 20, "after"),
    # backward and optimizer
    Point("torch:Tensor.backward", 5),
    Point("torch.nn.utils:clip_grad_norm_", 3, "after"),
    Point("torch.optim:AdamW.step", 1),
    Point("torch.optim:AdamW.step", 4, "after"),
    Point(f"{LOOP}._take_over", 3),
    # within a checkpoint
    Point("engine.rl.trainer:Trainer.save", 3),
    Point("engine.run.checkpoint:_make_durable", 4, "after"),
    Point("engine.run.checkpoint:_mark", 4),
    Point("engine.run.checkpoint:_remove", 1, "after"),
    Point("engine.run.checkpoint:CheckpointStore.select", 2),
    # gates
    Point("engine.evaluate.gate:Gate.__call__", 1, "after"),
    Point("engine.evaluate.gate:Gate.__call__", 2),
    Point(f"{RECORDER}.record_gate", 2, "after"),
    # files that are only ever appended to
    Point("engine.contract.events:EventLog.write", 40, "torn"),
    Point("engine.contract.trace:TraceWriter._write", 30, "torn"),
    # the report
    Point("engine.rl.report:to_score", 2),
    Point("engine.rl.report:report_fields", 1, "after"),
    Point("engine.rl.rl_run:final_report", 1, "after"),
]

POINTS = SHORT + LONG if os.environ.get("NIGHTLANE_LONG") else SHORT
"""`make test-resume` kills at all of them."""


@pytest.fixture(scope="module")
def killed_recipe(base_recipe: dict[str, Any]) -> dict[str, Any]:
    """Checkpoints after steps 0, 2, 3, 4 and 6, so that a kill costs whole steps too."""
    return base_recipe | {
        "max_steps": LAST,
        "save_every": 2,
        "heldout_every": 3,
        "keep_checkpoints": 1,
        "micro_batch": 32,
        "max_new_tokens": 3,
        "select_frac": 0.5,
    }


@pytest.fixture(scope="module")
def unbroken(
    killed_recipe: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the same recipe comes to in one piece."""
    run = add_attempt(tmp_path_factory.mktemp("whole"), killed_recipe)
    assert attempt(run.root) == 0
    return outcome(run)


def outcome(run: RunDir) -> dict[str, Any]:
    """All that must not depend on when a run was killed."""
    last = run.checkpoint(LAST)
    state = json.loads((last / "loop.json").read_bytes())
    return {
        "weights": sha256(last / "model" / "model.safetensors"),
        "optimizer": sha256(last / "optimizer.pt"),
        "state": without_time(state),
        "metrics": metrics_of(run),
        "gates": [(e["split"], e["step"], e["score"], e["ci95"]) for e in gates_of(run)],
        "rollouts": {path.name: sha256(path) for path in sorted(run.rollouts.glob("*.jsonl"))},
        "report": without_time(json.loads(run.report.read_bytes())),
        "selected": run.selected.resolve().name,
        "split": run.split.read_bytes(),
        "checkpoints": sorted(path.name for path in run.checkpoints.iterdir()),
    }


def differences(found: Any, expected: Any, name: str = "") -> list[str]:
    """What differs, leaf by leaf."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return [
            line
            for key in sorted({*found, *expected})
            for line in differences(found.get(key), expected.get(key), f"{name}.{key}")
        ]
    return [] if found == expected else [f"{name}: {found!r} is not {expected!r}"]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def without_time(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_time(v) for k, v in value.items() if not k.startswith("seconds")}
    return [without_time(item) for item in value] if isinstance(value, list) else value


def gates_of(run: RunDir) -> list[dict[str, Any]]:
    """Gates that still count, in the order of their steps."""
    kept: list[dict[str, Any]] = []
    for event in events_of(run):
        if event["type"] == "started":
            resumed = event["resumed_from"]
            kept = [e for e in kept if resumed is not None and e["step"] <= resumed]
        elif event["type"] == "gate":
            kept.append(event)
    return sorted(kept, key=lambda e: (e["split"], e["step"]))


def metrics_of(run: RunDir) -> dict[str, float]:
    """Series by step, as the worker folds them; wall-clock time and memory left out."""
    found: dict[str, float] = {}
    for event in events_of(run):
        if event["type"] == "started":
            resumed = event["resumed_from"] or 0
            found = {k: v for k, v in found.items() if int(k.rpartition("@")[2]) <= resumed}
        elif event["type"] == "metric":
            for series, value in event["values"].items():
                if not series.startswith(("time/", "mem/", "rollout/tokens_per_s")):
                    found[f"{series}@{event['step']}"] = value
    return found


def killed_and_resumed(run: RunDir, point: Point, recipe: dict[str, Any], root: Path) -> RunDir:
    assert attempt(run.root, point) == -9, f"never reached: {point}"
    again = add_attempt(root, recipe, name=run.root.name)
    assert attempt(again.root) == 0
    return again


@pytest.mark.requirement("RL-15")
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_run_killed_in_any_phase_ends_with_the_same_bits(
    point: Point, killed_recipe: dict[str, Any], unbroken: dict[str, Any], tmp_path: Path
) -> None:
    """Weights, moments, metrics, gates, rollouts, report: equal to the unbroken run's."""
    run = add_attempt(tmp_path, killed_recipe)

    again = killed_and_resumed(run, point, killed_recipe, tmp_path)

    assert differences(outcome(again), unbroken) == []
