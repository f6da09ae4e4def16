"""Killed anywhere and resumed, a run ends as if nothing had happened, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.killing import LONG_FORM, Point, killed_and_resumed, unbroken_run
from tools.run_outcome import differences, outcome

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
    Point("engine.rl.recorder:prove", 1),
    Point("engine.run.proof:write_json", 1),
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

POINTS = SHORT + LONG if LONG_FORM else SHORT
"""`make test-resume` kills at all of them."""


@pytest.fixture(scope="module")
def killed_recipe(base_recipe: dict[str, Any]) -> dict[str, Any]:
    """Checkpoints after steps 0, 2, 3, 4 and 6, so that a kill costs whole steps too."""
    return base_recipe | {
        "max_steps": 6,
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
    return outcome(unbroken_run("rl_run", killed_recipe, tmp_path_factory.mktemp("whole")))


@pytest.mark.requirement("RL-15")
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_run_killed_in_any_phase_ends_with_the_same_bits(
    point: Point, killed_recipe: dict[str, Any], unbroken: dict[str, Any], tmp_path: Path
) -> None:
    """Weights, moments, metrics, gates, rollouts, report: equal to the unbroken run's."""
    again = killed_and_resumed("rl_run", killed_recipe, tmp_path, point)

    assert differences(outcome(again), unbroken) == []
