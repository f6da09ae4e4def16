"""How many samples a step has, whatever number of ranks a run goes on with. Knows no model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.stage2.config import Stage2Config
from engine.run.checkpoint import Checkpoint


def batch_facts(config: Stage2Config, ranks: int) -> dict[str, Any]:
    """For every checkpoint: the ranks, and what a step learns and rolls out over all of them."""
    samples = _per_pass(config, ranks) * config.training.accumulation_steps(ranks)
    rollouts = config.rollouts_per_step(ranks)
    return {"batch": {"ranks": ranks, "samples": samples, "rollouts": rollouts}}


def with_batch_of(resumed: Checkpoint | None, config: Stage2Config, ranks: int) -> Stage2Config:
    """The config with as many samples and rollouts a step as the run has had so far.

    Raises ConfigError where so many samples are no whole passes of so many ranks.
    """
    before: Mapping[str, int] = {} if resumed is None else resumed.state.get("batch", {})
    if before.get("ranks", ranks) == ranks:
        return config
    samples, each = before["samples"], _per_pass(config, ranks)
    if samples % each:
        problem = (
            f"learn {each} samples in a pass, and a step of this run has {samples}, which is no "
            "multiple"
        )
        remedy = (
            f"go on with {before['ranks']}, as it began, or with another number that divides it"
        )
        raise ConfigError([ConfigProblem("ranks", ranks, problem, remedy)])
    batch = {"effective_batch_size": samples, "gradient_accumulation_steps": None}
    changes: dict[str, Any] = {"training": config.training.model_copy(update=batch)}
    if config.stage2_ab is not None:
        rollouts = {"rollouts_per_step": before["rollouts"]}
        channel_b = config.stage2_ab.channel_b.model_copy(update=rollouts)
        changes["stage2_ab"] = config.stage2_ab.model_copy(update={"channel_b": channel_b})
    return config.model_copy(update=changes)


def _per_pass(config: Stage2Config, ranks: int) -> int:
    return config.training.per_device_train_batch_size * ranks
