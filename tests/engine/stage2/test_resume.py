"""A stage-2 run that is killed anywhere and resumed ends as if nothing had happened, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.contract.run_dir import RunDir
from engine.stage2.embedded import shapes
from tests.engine.killing import LONG_FORM, Point, killed_and_resumed, unbroken_run
from tests.engine.stage2.conftest import changed
from tools.run_outcome import differences, outcome

Recipe = dict[str, Any]

CALLBACK = "engine.stage2.callback:RunCallback"
CHECKPOINT = "engine.run.checkpoint"
RECORDER = "engine.run.recorder:Recorder"
SAMPLER = "engine.stage2.rollout.hf:HFSampler"
TRAINER = "transformers:Trainer"
TRAINER_STATE = "transformers.trainer_callback:TrainerState.save_to_json"

SHORT = [
    # between publishing step 0 and proving it
    Point("engine.stage2.run:prove_together", 1),
    Point(f"{SAMPLER}._decode", 3),
    Point("torch.optim:AdamW.step", 5, "after"),
    Point(TRAINER_STATE, 3),
    Point(f"{RECORDER}.gate", 2, "after"),
    Point("engine.stage2.evaluation:RolloutEval.__call__", 5),
]
"""One for each phase; the others are as good, and take minutes longer."""

LONG = [
    # before anything trains
    Point("engine.run.session:Attempt.freeze_inputs", 1, "after"),
    Point("engine.stage2.warmup:Warmup._update", 2),
    Point("engine.run.warmup:WarmupCache.keep", 1, "after"),
    Point(f"{CALLBACK}.on_train_begin", 1),
    # the first checkpoint: until it is marked, the run begins anew
    Point(f"{CHECKPOINT}:_mark", 2),
    Point(f"{CHECKPOINT}:_mark", 2, "after"),
    Point("engine.run.proof:write_json", 1),
    Point("engine.run.proof:write_json", 1, "after"),
    # Channel-B's rollouts and their rows
    Point("engine.stage2.rollout_step:RolloutStep.__call__", 2, "after"),
    Point("engine.stage2.record:write_rows", 2, "torn"),
    Point("engine.stage2.record:write_rows", 2, "after"),
    # backward and optimizer
    Point("torch:Tensor.backward", 5),
    Point("torch.optim:AdamW.step", 3),
    Point("torch.optim:AdamW.step", 6, "after"),
    Point(f"{CALLBACK}.on_step_end", 3, "after"),
    # within the Trainer's save: nothing, the model alone, all but the marker
    Point(f"{TRAINER}.save_model", 3),
    Point(f"{TRAINER}._save_optimizer_and_scheduler", 2),
    Point(f"{TRAINER}._save_rng_state", 4, "after"),
    Point(TRAINER_STATE, 4, "after"),
    # sealing it, and what follows
    Point(f"{CHECKPOINT}:_make_durable", 4, "after"),
    Point(f"{CHECKPOINT}:_mark", 4),
    Point(f"{CHECKPOINT}:_mark", 5, "after"),
    Point(f"{CALLBACK}.card", 3),
    Point(f"{CHECKPOINT}:_remove", 1),
    Point(f"{CHECKPOINT}:_remove", 1, "after"),
    Point(f"{CHECKPOINT}:CheckpointStore.select", 3),
    Point(f"{CHECKPOINT}:CheckpointStore.select", 4, "after"),
    # gates: the evaluation, the rows, the event
    Point("engine.stage2.evaluation:RolloutEval.__call__", 2),
    Point("engine.stage2.evaluation:RolloutEval.__call__", 3, "after"),
    Point("engine.run.recorder:write_rows", 1, "torn"),
    Point("engine.run.recorder:write_rows", 1, "after"),
    Point("engine.run.recorder:write_rows", 3, "after"),
    Point(f"{RECORDER}.gate", 1, "after"),
    Point(f"{CALLBACK}.on_evaluate", 2, "after"),
    # a file that is only ever appended to
    Point("engine.contract.events:EventLog.write", 25, "torn"),
    # the report
    Point(f"{RECORDER}.gate", 4, "after"),
    Point("engine.stage2.report:report_fields", 1, "after"),
    Point("engine.run.report:write_json", 1, "after"),
    Point("engine.stage2.run:final_report", 1, "after"),
]

ADAPTER = [
    # the warmed-up model, of which the checkpoints hold an adapter alone
    Point("engine.stage2.warmed_base:keep", 1),
    Point(f"{CHECKPOINT}:_mark", 2),
    Point("engine.stage2.warmed_base:keep", 1, "after"),
    Point("engine.stage2.run:prove_together", 1),
    Point(f"{CHECKPOINT}:_mark", 5),
    Point(f"{RECORDER}.gate", 4),
]

POINTS = SHORT + LONG if LONG_FORM else SHORT
"""`make test-resume` kills at all of them."""


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One rectangle each, so that a model learns in seconds where some of them are."""
    folder = tmp_path_factory.mktemp("scenes")
    style = shapes.Style(most_objects=1)
    drawn = shapes.distinct(24, 7, style)
    # 16 records: the last step lies within an epoch
    parts = {"train": drawn[:16], "val": drawn[16:20], "report": drawn[20:]}
    return {
        f"data__{name}_jsonl": str(shapes.write(folder, name, part, style))
        for name, part in parts.items()
    }


@pytest.fixture(scope="module")
def taught_recipe(
    ab_recipe: Recipe, scenes: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Recipe:
    """From a model that finds some rectangles: two steps of warm-up, six of training.

    Checkpoints after steps 0, 2, 4 and 6 and after a gate that is the best so far.
    """
    recipe = changed(
        ab_recipe,
        **scenes,
        report_min=4,
        keep_checkpoints=1,
        custom__extra__rollout_matching__max_new_tokens=40,
        custom__extra__rollout_matching__iou_gate=0.1,
        stage2_ab__coord_mass_weight=1.0,
        stage2_ab__bbox_smoothl1_weight=2.0,
        warmup={"target_f1": 0.1, "max_steps": 300, "eval_every": 10, "lr": 0.01, "batch_size": 8},
        training__seed=1,
        training__learning_rate=3e-4,
    )
    teaching = changed(recipe, training__max_steps=1)
    run = unbroken_run("stage2_ab", teaching, tmp_path_factory.mktemp("taught"))
    return changed(
        recipe,
        model__path=str(run.checkpoints / "checkpoint-0"),
        warmup={"target_f1": 0.01, "max_steps": 20, "eval_every": 2, "batch_size": 4},
    )


@pytest.fixture(scope="module")
def unbroken(taught_recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """What it comes to in one piece."""
    return came_to(unbroken_run("stage2_ab", taught_recipe, tmp_path_factory.mktemp("whole")))


@pytest.fixture(scope="module")
def adapter_recipe(taught_recipe: Recipe) -> Recipe:
    return changed(taught_recipe, model__tuning="lora", training__learning_rate=3e-3)


@pytest.fixture(scope="module")
def unbroken_adapter(adapter_recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    return came_to(unbroken_run("stage2_ab", adapter_recipe, tmp_path_factory.mktemp("whole")))


def came_to(run: RunDir) -> dict[str, Any]:
    """Left out is what a kill before the first checkpoint after it changes, and nobody goes by:
    whether the warm-up was taken from the cache, its series, and the Trainer's own log.
    """
    found = outcome(run, but=("cached", "log_history"))
    metrics = {name: v for name, v in found["metrics"].items() if not name.startswith("warmup/")}
    return found | {"metrics": metrics}


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_run_killed_in_any_phase_ends_with_the_same_bits(
    point: Point, taught_recipe: Recipe, unbroken: Recipe, tmp_path: Path
) -> None:
    """Weights, moments, metrics, gates, rollouts, report: equal to the unbroken run's."""
    again = killed_and_resumed("stage2_ab", taught_recipe, tmp_path, point)

    assert differences(came_to(again), unbroken) == []


@pytest.mark.parametrize("point", ADAPTER if LONG_FORM else ADAPTER[1:2], ids=str)
def test_a_run_of_an_adapter_keeps_its_base_through_a_kill(
    point: Point, adapter_recipe: Recipe, unbroken_adapter: Recipe, tmp_path: Path
) -> None:
    """The warmed-up model that the adapter belongs to is the same one to the bit."""
    again = killed_and_resumed("stage2_ab", adapter_recipe, tmp_path, point)

    assert differences(came_to(again), unbroken_adapter) == []
