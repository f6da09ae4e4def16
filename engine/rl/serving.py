"""An `rl_run`'s serving lane, built from its config: what it asks of a server, and what it records.

Knows the run directory and the policy; not how a server is started or asked.
"""

from __future__ import annotations

import time
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
from engine.sampling.vllm.lane import Rested, ServingLane
from engine.sampling.vllm.launch import Needs
from engine.sampling.vllm.line import CallEvent
from engine.sampling.vllm.parity import CONTEXTS
from engine.sampling.vllm.places import parallel
from engine.sampling.vllm.sync.proof import Synced

_NAMED = 3
"""Requests that a note names."""
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
            parallel=parallel(config.vllm, torch.cuda.device_count()),
        ),
        policy,
        contexts=[prompts.heldout(row) for row in asked[:CONTEXTS]],
        folder=attempt.run.serving,
        log=attempt.dir.serving_log,
        tolerance=config.sync_tolerance_used,
        say=attempt.note,
        listen=_Syncs(attempt, policy, trace),
        rested=_Rests(attempt, policy),
        calls=_Calls(attempt, trace),
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


class _Syncs:
    """Writes each sync down: how long it took, and the proof's numbers once a step."""

    def __init__(self, attempt: Attempt, policy: Policy, trace: TraceWriter) -> None:
        self._attempt = attempt
        self._policy = policy
        self._trace = trace
        self._step = 0

    def __call__(self, synced: Synced) -> None:
        step = self._policy.version
        seconds = round(synced.seconds, 4)
        told = {"mode": synced.mode, "bytes": synced.bytes, "tries": synced.tries}
        self._attempt.events.write("span", name="weight-sync", seconds=seconds, step=step, **told)
        now = time.monotonic()
        self._trace.span("weight-sync", now - synced.seconds, now, step=step, **told)
        if step <= self._step:  # a checkpoint was taken back, or nothing was trained yet
            return
        self._step = step
        values = {
            "time/sync_s": synced.seconds,
            "sync/gap": synced.compared.gap,
            "sync/bytes": float(synced.bytes),
        }
        if synced.compared.moved is not None:
            values["sync/moved"] = synced.compared.moved
        self._attempt.metric(step, values)


class _Calls:
    """Writes down what servers were asked, so that anybody can see under which decoding and seeds a
    completion was drawn, and says what did not go at once.
    """

    def __init__(self, attempt: Attempt, trace: TraceWriter) -> None:
        self._attempt = attempt
        self._trace = trace

    def __call__(self, call: CallEvent) -> None:
        told = {
            "server": call.server,
            "requests": list(call.requests),
            "attempt": call.attempt,
            "seed": call.seed,
            "decoding": dict(call.decoding),
        }
        self._trace.mark(f"rollout-call: {call.what}", **told, problem=call.problem)
        if call.what != "sent":
            ids = ", ".join(call.requests[:_NAMED])
            more = f" and {len(call.requests) - _NAMED} more" * (len(call.requests) > _NAMED)
            self._attempt.warn(
                "SERVER_CALL",
                f"{call.what} at {call.server}, try {call.attempt}: {ids}{more}"
                + (f"; {call.problem}" if call.problem else ""),
            )


class _Rests:
    """Writes down what a colocated engine gave back before the trainer learnt."""

    def __init__(self, attempt: Attempt, policy: Policy) -> None:
        self._attempt = attempt
        self._policy = policy

    def __call__(self, rested: Rested) -> None:
        self._attempt.events.write(
            "span",
            name="engine-rest",
            seconds=round(rested.seconds, 4),
            step=self._policy.version + 1,
            given_back_gb=round(rested.given_back_gb, 3),
        )
