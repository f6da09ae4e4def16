"""Every objective and optimizer option in whole runs of the real parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.contract.events import Event
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.run_dir import RunDir
from engine.data.rows import load
from engine.rewards.adapter import RewardAdapter, load_verifier
from engine.rl import RLLoop, gpu_seams
from engine.rl.rl_run import run as rl_run
from engine.run.session import Attempt

RUNS: dict[str, dict[str, Any]] = {
    "grpo, two updates a step": {"objective": {"loss": "grpo", "epochs": 2}},
    "dr_grpo, layers computed again": {
        "objective": {"loss": "dr_grpo", "minibatches": 2},
        "optim": {"gradient_checkpointing": True},
        "lr": 5e-3,  # Adam's second step is as long, and may be that of tied groups: KL alone
    },
    "rloo with k2": {"objective": {"loss": "rloo", "kl": "k2"}},
    "dapo, packed": {
        "objective": {"loss": "dapo"},
        "optim": {"batching": "packed", "pack_tokens": 64},
        "kl_coef": 0.0,
    },
    "gspo, bf16": {"objective": {"loss": "gspo"}, "optim": {"precision": "bf16"}},
    "cispo, warm-up and cosine": {
        "objective": {"loss": "cispo"},
        "optim": {"warmup_steps": 2, "schedule": "cosine", "adam_eps": 1e-6},
        "kl_coef": 0.0,
    },
    "dora, sampler correction": {
        "objective": {"sampler_correction": "tis"},
        "tuning": "dora",
        "lora_rank": 8,
        "lr": 2e-2,
    },
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_learns_with_any_objective(recipe: dict[str, Any], name: str) -> None:
    """Questions whose answer is always 7: held-out rises from near nothing to most of it."""
    config = RLRunConfig(**recipe | {"max_steps": 12, "lr": 1e-2} | RUNS[name])
    reward = RewardAdapter(load_verifier("exact"))

    loop = RLLoop(config, reward, load(config.data), **gpu_seams(config)._asdict())
    loop.run()

    assert loop.selected_heldout_score is not None
    assert loop.selected_heldout_score > loop.heldout_scores[0] + 0.4


@pytest.mark.requirement("EX-01")
def test_a_run_measures_the_sampler_at_every_step_and_warns_above_the_limit(
    recipe: dict[str, Any],
    new_attempt: Callable[..., RunDir],
    open_newest: Callable[[RunDir], Attempt],
    events: Callable[..., list[Event]],
) -> None:
    """With a limit of a billionth of a nat the real difference of rounding is a warning."""
    changes = {"max_steps": 2, "max_new_tokens": 6, "objective": {"sampler_gap_warn": 1e-9}}
    run = new_attempt(recipe | changes)

    rl_run(open_newest(run))

    gaps = [e["values"].get("train/sampler_gap_max") for e in events(run, "metric")]
    assert [gap < 1e-4 for gap in gaps if gap is not None] == [True, True]
    notes = [e for e in events(run, "note") if e["code"] == "SAMPLER_GAP"]
    assert [note["level"] for note in notes] == ["warning"] * 2
    assert "step 1: sampler and trainer differ by" in notes[0]["text"]
