"""Whole runs with a server that is not believed, and with one that draws ahead."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.events import Event
from engine.contract.run_dir import COMPLETE, ExitCode, RunDir
from tests.engine import killing
from tests.engine.conftest import add_attempt
from tests.engine.killing import Point
from tests.engine.sampling.vllm.conftest import STAND_IN, lane_of

Events = Callable[..., list[Event]]
Recipe = dict[str, Any]
ROOT = Path(__file__).parents[4]
pytestmark = pytest.mark.timeout(600)
"""Each starts two servers, slowly on a busy machine."""
ASKED_BEFORE_STEP_2 = {1.0: 24, 0.2: 12}
"""Prompts by temperature: twelve that show what seeds do, four of the proof, eight of step 1; the
rows of the baseline's gate."""


def liar(temp: float) -> str:
    """Tells true numbers until step 2, and then false ones to requests of this temperature."""
    environment = f"PYTHONPATH={ROOT} LIES_AFTER={ASKED_BEFORE_STEP_2[temp]} LIES_AT={temp}"
    program = f"{sys.executable} -m tests.engine.sampling.vllm.late_liar"
    return f"env {environment} {program} {{base}} {{options}}"


@pytest.fixture
def served(recipe: Recipe) -> Recipe:
    """Four steps whose LoRA adapter learns at once."""
    return recipe | {
        "tuning": "lora",
        "lora_rank": 4,
        "rollout_backend": "vllm",
        "max_steps": 4,
        "heldout_every": 4,
        "heldout_frac": 0.2,
        "report_min": 1,
        "lr": 1e-2,
        "objective": {"loss": "grpo"},
    }


def attempt(run: RunDir, recipe: Recipe, command: str, point: Point | None = None) -> int:
    add_attempt(run.root.parent, recipe, name=run.root.name, serving=lane_of(command))
    return killing.attempt(run.root, point)


def rollouts(run: RunDir, step: int, kind: str = "train") -> list[tuple[Any, ...]]:
    lines = (run.rollouts / f"{kind}-{step:06d}.jsonl").read_text("utf-8").splitlines()
    names = ("id", "sample", "version", "completion_ids")
    return [tuple(row[name] for name in names) for row in map(json.loads, lines)]


@pytest.mark.requirement("EX-01", "RL-18")
def test_a_step_whose_numbers_the_trainer_contradicts_is_never_taken(
    served: Recipe, tmp_path: Path, events: Events
) -> None:
    """Exit 76 by name; the step before it stands, and with an honest server the run goes on."""
    run = RunDir(tmp_path / "run")

    status = attempt(run, served, liar(1.0))

    assert status == ExitCode.DECLINED
    [finished] = events(run, "finished")
    assert finished["result"]["cause"] == "SAMPLER_CONTRADICTED"
    assert "sampler and trainer differ by 3.5 nats a token over" in finished["result"]["error"]
    assert "question 'q" in finished["result"]["error"]
    assert (run.checkpoint(1) / COMPLETE).exists()
    assert not run.checkpoint(2).exists()
    assert [path.name for path in run.rollouts.glob("train-*")] == ["train-000001.jsonl"]

    assert attempt(run, served, STAND_IN) == ExitCode.DONE

    assert [e["resumed_from"] for e in events(run, "started")] == [None, 1]
    assert events(run, "finished")[-1]["result"]["steps"] == 4


@pytest.mark.requirement("EX-01")
def test_a_gate_whose_numbers_the_trainer_contradicts_publishes_nothing(
    served: Recipe, tmp_path: Path, events: Events
) -> None:
    """Though every rollout that trains is sound."""
    run = RunDir(tmp_path / "run")

    status = attempt(run, served | {"heldout_every": 2}, liar(0.2))

    assert status == ExitCode.DECLINED
    [finished] = events(run, "finished")
    assert finished["result"]["cause"] == "SAMPLER_CONTRADICTED"
    assert finished["result"]["error"].startswith("held-out rows at step 2: ")
    assert [(e["step"], e["split"]) for e in events(run, "gate")] == [(0, "select")]
    assert finished["result"]["selected_step"] == 0
    assert not run.report.exists()


@pytest.mark.requirement("EX-15")
def test_a_run_that_draws_ahead_is_killed_and_goes_on_with_the_same_groups(
    served: Recipe, tmp_path: Path, events: Events
) -> None:
    """One version behind from step 2 on, held against the weights that drew each batch; killed at
    a gate, before which the batch of the next step came in."""
    recipe = served | {
        "buffer": {"max_staleness": 1},
        "objective": {"loss": "grpo", "sampler_correction": "tis"},
        "heldout_every": 3,
    }
    run = RunDir(tmp_path / "run")

    killed = attempt(run, recipe, STAND_IN, Point("engine.rl.recorder:LoopRecorder.gated", 2))
    before = [rollouts(run, 1), rollouts(run, 2), rollouts(run, 3), rollouts(run, 4, "ahead")]
    ended = attempt(run, recipe, STAND_IN)

    assert (killed, ended) == (-9, ExitCode.DONE)
    assert [e["resumed_from"] for e in events(run, "started")] == [None, 2]
    assert [rollouts(run, step) for step in (1, 2, 3, 4)] == before
    versions = [{version for _, _, version, _ in rows} for rows in before]
    assert versions == [{0}, {0}, {1}, {2}]
    measured = [e["values"] for e in events(run, "metric") if "pool/score" in e["values"]]
    gaps = [values["rollout/sampler_gap"] for values in measured if "time/ahead_s" in values]
    assert len(gaps) >= 2
    assert max(gaps) < 1e-4
    # The weights of now lie farther away than those that drew.
    moved = [
        e["values"]["sync/moved"] for e in events(run, "metric") if "sync/moved" in e["values"]
    ]
    assert min(moved) > 1e-3
