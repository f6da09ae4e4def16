"""`gpu_seams`: the three real seams of the loop for whoever drives it without a run directory.

Importing this module needs no torch; calling it does.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

from engine.contract.errors import RLLoopError
from engine.contract.kinds.rl_run import GRPOConfig, RLRunConfig
from engine.rewards.of_run import build_reward
from engine.rl.loop import HeldoutEval, TrainerSeam
from engine.sampling.base import Sampler


class Seams(NamedTuple):
    """In the order of `RLLoop`'s arguments: `RLLoop(config, reward, bench, **seams._asdict())`."""

    sampler: Sampler
    trainer: TrainerSeam
    heldout_eval: HeldoutEval


def gpu_seams(config: GRPOConfig) -> Seams:
    """One policy behind all three: what the trainer changes, the sampler samples from.

    A plain GRPOConfig takes the defaults of `rl_run` for the rest. Raises RLLoopError without the
    `engine` extra, or when the base does not load.
    """
    try:
        parts = importlib.import_module("engine.rl.parts")
    except ImportError as error:
        raise RLLoopError.of(
            "seams",
            error.name,
            "a library of the `engine` extra is missing",
            "install it: pip install 'nightlane[engine]'",
        ) from error
    full = config if isinstance(config, RLRunConfig) else RLRunConfig(**config.model_dump())
    if full.serves:
        raise RLLoopError.of(
            "rollout_backend",
            full.rollout_backend,
            "needs a run directory for its server's log and adapters",
            "run it as a job (cockpit enqueue), or set rollout_backend: hf",
        )
    policy = parts.build_policy(full)
    return Seams(
        sampler=parts.build_sampler(full, policy, "train"),
        trainer=parts.build_trainer(full, policy),
        heldout_eval=parts.build_gate(full, policy, build_reward(full)),
    )
