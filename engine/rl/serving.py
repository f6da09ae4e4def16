"""An `rl_run`'s serving lane, built from its config: what it asks of a server, and what it records.

Knows the run directory and the policy; not how a server is started or asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from engine.contract.envelope import ModelShape
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.rl.envelope import serving_kv_gib
from engine.contract.serving import Serving
from engine.contract.trace import TraceWriter
from engine.models import tiny
from engine.models.policy import Policy
from engine.rl.parts import Prompts
from engine.run.checkpoint import Checkpoint, Warn
from engine.run.session import Attempt
from engine.sampling.vllm.lane import ServingLane
from engine.sampling.vllm.launch import Needs
from engine.sampling.vllm.parity import CONTEXTS
from engine.sampling.vllm.places import parallel
from engine.sampling.vllm.record import Calls, Rests, Syncs

_DTYPES: Mapping[str, str] = {"fp32": "float32", "bf16": "bfloat16"}


def build_lane(
    attempt: Attempt,
    config: RLRunConfig,
    policy: Policy,
    prompts: Prompts,
    *,
    resumed: Checkpoint | None,
    trace: TraceWriter,
) -> ServingLane | None:
    """Not up yet; None where the policy itself samples.

    The weights are proven at the first held-out prompts of the run.
    """
    if not config.serves:
        return None
    before = resumed.state.get("serving") if resumed else None
    split, asked = prompts.split, [*prompts.split.select, *prompts.split.report]
    lengths = [
        *prompts.heldout.lengths(asked, enough=0),
        *prompts.training.lengths(split.train, enough=0),
    ]
    window = config.max_new_tokens + max(lengths, default=0)
    return ServingLane(
        attempt.job.serving or Serving(),
        Needs(
            base=tiny.folder_of(config.base, config.seed, Path(attempt.job.cache_dir)),
            dtype=_DTYPES[config.optim.precision],
            window=window,
            at_once=config.rollout_batch,
            rank=int(policy.model.peft_config["default"].r) if config.sends_adapters else 0,
            kv_gib=_kv_gib(config, policy, window),
            version=config.vllm_pin,
            parallel=parallel(config.vllm, torch.cuda.device_count(), config.ranks),
            learners=config.ranks,
        ),
        policy,
        contexts=[prompts.heldout(row) for row in asked[:CONTEXTS]],
        folder=attempt.run.serving,
        log=attempt.dir.serving_log,
        tolerance=config.sync_tolerance_used,
        say=attempt.note,
        listen=Syncs(attempt, policy, trace),
        rested=Rests(attempt, policy),
        calls=Calls(attempt, trace),
        vllm=config.vllm,
        mode=config.sync_mode,
        before=before,
    )


def make_room_by(lane: ServingLane | None) -> Callable[[], None]:
    """What is called before the trainer learns."""
    return (lambda: None) if lane is None else lane.rest


def served(lane: ServingLane | None, config: RLRunConfig) -> dict[str, Any] | None:
    """Who samples, with the pinned version; None = the trainer's own model, nothing pinned."""
    if lane is not None:
        return lane.facts
    return None if config.vllm_pin is None else {"pin": config.vllm_pin, "version": None}


def warn_of_change(resumed: Checkpoint | None, now: Mapping[str, Any] | None, warn: Warn) -> None:
    """A resumed run may meet another version than the one that sampled its first half."""
    before = None if resumed is None else resumed.state.get("serving")
    if before and now and before.get("version") != now["version"]:
        warn(
            "SERVING_CHANGED",
            f"vLLM {now['version']} samples from here on, {before.get('version')} did before; "
            "set vllm_pin to refuse that",
        )


def _kv_gib(config: RLRunConfig, policy: Policy, window: int) -> int:
    shape = ModelShape.of_config(policy.model.config.to_dict())
    return 1 if shape is None else serving_kv_gib(config, shape, window)
