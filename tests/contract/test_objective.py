"""The sections `objective` and `optim`: prescriptions, refusals, schedule, cautions."""

from __future__ import annotations

from typing import Any

import pytest

from engine.contract.errors import ConfigError
from engine.contract.registry import cautions, validate
from engine.contract.rl.objective import ObjectiveConfig
from engine.contract.rl.optim import OptimConfig

BASE = {"base": "embedded:qwen3-tiny", "tuning": "full"}


@pytest.mark.parametrize(
    ("loss", "advantages", "aggregation", "bounds", "zero_signal"),
    [
        ("reinforce_kl", "group_std", "sequence_mean", (0.0, float("inf")), "filter"),
        ("grpo", "group_std", "sequence_mean", (0.8, 1.2), "keep"),
        ("dr_grpo", "group_mean", "constant", (0.8, 1.2), "keep"),
        ("rloo", "leave_one_out", "sequence_sum", (0.0, float("inf")), "keep"),
        ("dapo", "group_std", "token_mean", (0.8, 1.28), "refill"),
        ("gspo", "group_std", "sequence_mean", (0.9997, 1.0004), "keep"),
        ("cispo", "group_std", "token_mean", (0.0, 5.0), "keep"),
    ],
)
def test_a_loss_brings_what_its_paper_prescribes(
    loss: Any, advantages: str, aggregation: str, bounds: tuple[float, float], zero_signal: str
) -> None:
    """Baseline, aggregation, clip bounds and groups without signal, where nothing else is said."""
    objective = ObjectiveConfig(loss=loss)

    assert objective.advantages_used == advantages
    assert objective.aggregation_used == aggregation
    assert objective.clip_bounds == pytest.approx(bounds)
    assert objective.zero_signal_used == zero_signal


def test_a_setting_that_is_given_wins_over_the_paper() -> None:
    """Each of them for itself."""
    objective = ObjectiveConfig(
        loss="grpo", advantages="group_mean", aggregation="token_mean", clip_high=0.5
    )

    assert objective.advantages_used == "group_mean"
    assert objective.aggregation_used == "token_mean"
    assert objective.clip_bounds == (0.8, 1.5)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"objective": {"loss": "ppo"}}, r"^objective.loss: input should be 'reinforce_kl', "),
        ({"objective": {"clip_hihg": 1}}, r"^objective.clip_hihg: is not a setting; did you mean"),
        (
            {"objective": {"epochs": 2}},
            r"^objective: reinforce_kl has no ratio to correct epochs=2",
        ),
        ({"objective": {"loss": "rloo", "minibatches": 4}}, r"^objective: rloo has no ratio"),
        ({"objective": {"clip_low": 0.1}}, r"^objective: reinforce_kl has no ratio to clip"),
        ({"objective": {"loss": "grpo", "clip_low": 1.5}}, r"^objective.clip_low: "),
        (
            {"objective": {"overlong_buffer": 16}},
            r"^objective.overlong_buffer: takes reward from every completion: max_new_tokens is 16 "
            r"\(got 16\); set it below, DAPO takes a fifth \(3\); 0 is off",
        ),
        ({"optim": {"precision": "fp16"}}, r"^optim.precision: input should be 'fp32' or 'bf16'"),
        ({"optim": {"adam_eps": 0}}, r"^optim.adam_eps: "),
        ({"optim": {"schedule": "cosin"}}, r"^optim.schedule: "),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(raw: dict[str, Any], message: str) -> None:
    """Field, value and remedy in one line."""
    with pytest.raises(ConfigError, match=message) as caught:
        validate("rl_run", BASE | raw)

    assert "\n" not in str(caught.value)


def test_the_schedule_is_a_function_of_the_step_alone() -> None:
    """Steps count from 1; the one behind the last is at the final share, later ones stay there."""
    linear = OptimConfig(schedule="linear", warmup_steps=4, final_lr_share=0.1)

    assert [linear.lr_factor(step, 8) for step in (1, 4, 6, 8, 9, 10)] == pytest.approx(
        [0.25, 1.0, 0.64, 0.28, 0.1, 0.1]
    )


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize(("warmup", "steps"), [(0, 1), (0, 2), (1, 4), (3, 4), (4, 4), (50, 34)])
def test_every_step_trains_at_a_learning_rate_above_zero(
    schedule: Any, warmup: int, steps: int
) -> None:
    """A step at 0 would pay for its rollouts and move nothing."""
    optim = OptimConfig(schedule=schedule, warmup_steps=warmup)

    factors = [optim.lr_factor(step, steps) for step in range(1, steps + 1)]

    assert min(factors) > 0
    assert max(factors) <= 1


@pytest.mark.requirement("EX-21")
@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"lr": 5e-5, "kl_coef": 0.001}, "lr: with kl_coef=0.001 is what collapsed"),
        ({"lr": 1e-4, "kl_coef": 0.0}, "lr: with kl_coef=0 is what collapsed"),
        ({"lr": 1e-5, "kl_coef": 0.04}, None),
        ({"lr": 1e-6, "kl_coef": 0.001}, None),
        ({"lr": 3e-4, "kl_coef": 0.02}, None),
        (
            {"tuning": "lora", "lr": 1e-6},
            "lr: is about the most that a weight moves in a step, and with tuning: lora they start "
            "at zero: 34 steps may change nothing (got 1e-06); LoRA takes 1e-5 to 1e-4",
        ),
        ({"tuning": "dora", "lr": 2e-6}, "lr: is about the most that a weight moves"),
        ({"tuning": "lora"}, None),
        ({"tuning": "lora", "lr": 1e-5}, None),
        ({"tuning": "lora", "lr": 0.0}, None),
        (
            {"optim": {"warmup_steps": 34}},
            "optim.warmup_steps: lasts as long as the run (max_steps=34): lr is reached at its end "
            "or never (got 34); set it to a tenth",
        ),
        ({"optim": {"warmup_steps": 33}}, None),
        (
            {"verifier": "gsm8k"},
            "max_new_tokens: cuts off what verifier: gsm8k reads before its end (got 16); set it",
        ),
        ({"verifier": "gsm8k", "max_new_tokens": 17}, None),
        ({"objective": {"kl": "k1"}}, "objective.kl: as a penalty has no gradient on average"),
        ({"objective": {"kl": "k1"}, "kl_coef": 0.0, "lr": 1e-6}, None),
        ({"buffer": {"max_reads": 3}}, "buffer.max_reads: does nothing without max_staleness"),
        ({"buffer": {"max_staleness": 2}}, "buffer.max_staleness: does nothing while a rollout"),
        (
            {"buffer": {"max_reads": 3, "max_staleness": 2}},
            "buffer.max_reads: trains on rollouts of older weights",
        ),
        (
            {
                "buffer": {"max_reads": 3, "max_staleness": 2},
                "objective": {"sampler_correction": "tis"},
            },
            None,
        ),
    ],
)
def test_what_is_known_to_collapse_is_cautioned_and_not_refused(
    raw: dict[str, Any], said: str | None
) -> None:
    """lr 5e-5 with β 0.001 collapsed; what stayed stable, and the demo, go without a word."""
    validate("rl_run", BASE | raw)

    lines = [found.line() for found in cautions("rl_run", BASE | raw)]

    assert [line.startswith(said or "") for line in lines] == ([True] if said else [])
