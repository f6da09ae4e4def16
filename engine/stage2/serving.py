"""A stage-2 run's serving lane, built from its config: what it asks and what it records.

Servers begin with the model that the config names and are brought the weights that train, vision
tower included; adapters go to servers of the model that the adapter belongs to. Knows the run
directory; not how a server is started or asked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
from transformers import TrainerCallback

from engine.contract.envelope import ModelShape
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.served import SAMPLER_GAP_LIMIT
from engine.contract.serving import Serving
from engine.contract.sources.records import Record
from engine.contract.stage2.config import Stage2Config, world_size_problems
from engine.contract.trace import TraceWriter
from engine.models.policy import Policy
from engine.models.qwen3_vl import VisionModel
from engine.run.checkpoint import Checkpoint
from engine.run.session import Attempt
from engine.sampling.vllm.lane import ServingLane
from engine.sampling.vllm.launch import Needs
from engine.sampling.vllm.parity import CONTEXTS
from engine.sampling.vllm.places import parallel
from engine.sampling.vllm.record import Calls, Rests, Syncs
from engine.stage2 import opening
from engine.stage2.corpus import Corpus, longest_prompt
from engine.stage2.rollout.prompts import PromptReader


class Served:
    """The lane of a run, and the weights that it serves."""

    def __init__(self, lane: ServingLane, policy: Policy, limit: float) -> None:
        self.lane = lane
        self.policy = policy
        self.limit = limit
        """Nats a token that a server's answers may lie from the trainer's model."""

    def version(self) -> int:
        """Step of the weights that train."""
        return self.policy.version


class FollowSteps(TrainerCallback):
    """Tells the lane at which step the weights are."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - its contract
        """A run that goes on begins at its checkpoint's step."""
        self._policy.version = state.global_step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - its contract
        """The optimizer has moved."""
        self._policy.version = state.global_step


def build_served(
    attempt: Attempt,
    config: Stage2Config,
    reader: PromptReader,
    corpus: Corpus,
    *,
    resumed: Checkpoint | None,
    trace: TraceWriter,
) -> Served | None:
    """Not up yet; None where the trainer's own model samples."""
    if not config.serves:
        return None
    rollouts, vlm = config.custom.extra.rollout_matching, reader.vlm
    vllm = rollouts.vllm
    policy = Policy(
        vlm.model,
        vlm.tokenizer,
        frozenset({reader.pieces.end_id}),
        version=0 if resumed is None else resumed.step,
    )
    dtype = str(next(vlm.model.parameters()).dtype).removeprefix("torch.")
    longest = longest_prompt(config, corpus, reader)
    window = vllm.max_model_len or longest + rollouts.max_new_tokens
    at_once = config.answers_at_once(1)
    lane = ServingLane(
        attempt.job.serving or Serving(),
        Needs(
            base=_base(attempt, config),
            dtype=dtype,
            window=window,
            at_once=at_once,
            rank=config.model.lora_rank if vllm.sync_mode == "adapter" else 0,
            kv_gib=_kv_gib(vlm, at_once * window),
            version=None,
            parallel=parallel(vllm, torch.cuda.device_count()),
            options=_pictures(vlm, corpus),
        ),
        policy,
        contexts=_contexts(reader, corpus.train),
        folder=attempt.run.serving,
        log=attempt.dir.serving_log,
        tolerance=SYNC_TOLERANCE[_precision(dtype)],
        say=attempt.note,
        listen=Syncs(attempt, policy, trace),
        rested=Rests(attempt, policy),
        calls=Calls(attempt, trace),
        vllm=vllm,
        mode=vllm.sync_mode,
        before=resumed.state.get("serving") if resumed else None,
    )
    return Served(lane, policy, SAMPLER_GAP_LIMIT[_precision(dtype)])


def require_ranks(config: Stage2Config, ranks: int) -> None:
    """Raises ConfigError for what so many learner ranks cannot do."""
    problems = list(world_size_problems(config, ranks))
    if config.serves and ranks > 1 and not problems:
        problem = f"is not run by {ranks} learner ranks yet"
        remedy = "set rollout_backend: hf, or start one rank"
        field = "custom.extra.rollout_matching.rollout_backend"
        problems.append(ConfigProblem(field, "vllm", problem, remedy))
    if problems:
        raise ConfigError(problems)


SYNC_TOLERANCE = {"fp32": 0.01, "bf16": 0.15}
"""Nats a token, as an `rl_run` has it."""


def _precision(dtype: str) -> str:
    return "fp32" if dtype == "float32" else "bf16"


def _base(attempt: Attempt, config: Stage2Config) -> str:
    """The model that servers begin with: an adapter belongs to the one that the run keeps."""
    sends_adapters = config.custom.extra.rollout_matching.vllm.sync_mode == "adapter"
    if sends_adapters and opening.keeps_base(config):
        return str(attempt.run.base)
    return opening.named_folder(attempt, config)


def _kv_gib(vlm: VisionModel, tokens: int) -> int:
    model: Any = vlm.model
    shape = ModelShape.of_config(model.config.to_dict())
    return 1 if shape is None else shape.served_kv_gib(tokens)


def _pictures(vlm: VisionModel, corpus: Corpus) -> tuple[str, ...]:
    """As many and as large ones as training sees; what a picture is resized to, the run says."""
    records = (*corpus.train, *corpus.val, *corpus.report)
    most = max(len(record.images) for record in records)
    size = vlm.image_processor.size
    edges = {name: int(size[name]) for name in ("shortest_edge", "longest_edge")}
    return (
        *("--limit-mm-per-prompt", json.dumps({"image": most, "video": 0})),
        *("--mm-processor-kwargs", json.dumps({"size": edges})),
    )


def _contexts(reader: PromptReader, records: Sequence[Record]) -> list[tuple[int, ...]]:
    """Prompts without their pictures: weights are proven on text, and on pictures by each answer
    that is read again.
    """
    hidden = reader.pieces.placeholders
    prompts = [reader(record).ids for record in records[:CONTEXTS]]
    return [tuple(token for token in ids if token not in hidden) for ids in prompts]
