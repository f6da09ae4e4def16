"""A stage-2 run's serving lane, built from its config: what it asks and what it records.

Servers begin with the model that the config names and are brought the weights that train, vision
tower included; adapters go to servers of the model that the adapter belongs to. Knows the run
directory; not how a server is started or asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from engine.contract.envelope import ModelShape
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.served import SAMPLER_GAP_LIMIT, SYNC_TOLERANCE, Server
from engine.contract.serving import Serving
from engine.contract.sources.records import Record
from engine.contract.stage2.config import Stage2Config, world_size_problems
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.contract.trace import TraceWriter
from engine.models.policy import Policy
from engine.models.qwen3_vl import VisionModel
from engine.run.checkpoint import Checkpoint
from engine.run.ranks import Ranks
from engine.run.session import Attempt
from engine.sampling.vllm.checks import ReplyCheck
from engine.sampling.vllm.client import ServerApi
from engine.sampling.vllm.endpoint import Endpoint, Limits
from engine.sampling.vllm.infer import InferApi
from engine.sampling.vllm.infer_lane import InferLane, speaks_infer
from engine.sampling.vllm.lane import ServingLane
from engine.sampling.vllm.launch import Needs
from engine.sampling.vllm.parity import CONTEXTS
from engine.sampling.vllm.places import parallel
from engine.sampling.vllm.record import Calls, Rests, Syncs
from engine.sampling.vllm.sync.full import Transfer
from engine.sampling.vllm.sync.swift import SwiftTransfer, join_nccl
from engine.stage2 import opening
from engine.stage2.corpus import Corpus, longest_prompt
from engine.stage2.rollout.prompts import PromptReader
from engine.stage2.rollout.served import Served
from engine.stage2.rollout.shared_lane import SharedLane
from engine.stage2.rollout.vllm import witness


def build_served(
    attempt: Attempt,
    config: Stage2Config,
    reader: PromptReader,
    corpus: Corpus,
    ranks: Ranks,
    *,
    resumed: Checkpoint | None,
    trace: TraceWriter | None,
) -> Served | None:
    """Not up yet; None where the trainer's own model samples.

    Of several ranks the first one has the lane, and all ask its servers.
    """
    if not config.serves:
        return None
    vllm, vlm = config.custom.extra.rollout_matching.vllm, reader.vlm
    policy = Policy(
        vlm.model,
        vlm.tokenizer,
        frozenset({reader.pieces.end_id}),
        version=0 if resumed is None else resumed.step,
    )
    dtype = next(vlm.model.parameters()).dtype
    limit = SAMPLER_GAP_LIMIT["fp32" if dtype == torch.float32 else "bf16"]
    given = _Given(attempt, config, reader, corpus, policy, dtype, ranks)
    infer = bool(vllm.external) and ranks.from_first(
        lambda: speaks_infer(vllm.external[0], vllm.server)
    )
    lane: ServingLane | InferLane | None = None
    if trace is not None:  # the first rank's
        lane = (_infer_lane if infer else _serving_lane)(given, resumed, trace)
    if ranks.size == 1:
        assert lane is not None, "one rank writes the trace"
        return Served(lane, policy, limit)
    connect: Callable[[_Given, Any], Endpoint] = _infer_api if infer else _server_api
    at_once = 1 if infer else max(1, config.answers_at_once(ranks.size) // ranks.size)
    shared = SharedLane(ranks, lane, lambda address: connect(given, address), at_once=at_once)
    return Served(shared, policy, limit)


class _Given(NamedTuple):
    """What lanes are built from."""

    attempt: Attempt
    config: Stage2Config
    reader: PromptReader
    corpus: Corpus
    policy: Policy
    dtype: torch.dtype
    ranks: Ranks

    @property
    def rollouts(self) -> RolloutMatchingConfig:
        return self.config.custom.extra.rollout_matching

    @property
    def limits(self) -> Limits | None:
        """Of named servers; those that the run starts have the lane's."""
        server = self.rollouts.vllm.server
        if not self.rollouts.vllm.external or server is None:
            return None
        return Limits(server.timeout_s, server.infer_timeout_s)

    @property
    def tolerance(self) -> float:
        return SYNC_TOLERANCE["fp32" if self.dtype == torch.float32 else "bf16"]


def _serving_lane(given: _Given, resumed: Checkpoint | None, trace: TraceWriter) -> ServingLane:
    """Of vLLM's own servers."""
    attempt, config, reader, corpus, policy, dtype, ranks = given
    rollouts, vlm, vllm = given.rollouts, reader.vlm, given.rollouts.vllm
    longest = longest_prompt(config, corpus, reader)
    window = vllm.max_model_len or longest + rollouts.max_new_tokens
    at_once = config.answers_at_once(ranks.size)
    return ServingLane(
        attempt.job.serving or Serving(),
        Needs(
            base=_base(attempt, config),
            dtype=str(dtype).removeprefix("torch."),
            window=window,
            at_once=at_once,
            rank=config.model.lora_rank if vllm.sync_mode == "adapter" else 0,
            kv_gib=_kv_gib(vlm, at_once * window),
            version=None,
            parallel=parallel(vllm, torch.cuda.device_count(), ranks.size),
            learners=ranks.size,
            options=_pictures(vlm, corpus),
        ),
        policy,
        contexts=_contexts(reader, corpus.train),
        folder=attempt.run.serving,
        log=attempt.dir.serving_log,
        tolerance=given.tolerance,
        say=attempt.note,
        listen=Syncs(attempt, policy, trace),
        rested=Rests(attempt, policy),
        calls=Calls(attempt, trace),
        vllm=vllm,
        mode=vllm.sync_mode,
        before=resumed.state.get("serving") if resumed else None,
    )


def require_ranks(config: Stage2Config, ranks: int) -> None:
    """Raises ConfigError for what so many learner ranks cannot do."""
    problems = world_size_problems(config, ranks)
    if problems:
        raise ConfigError(problems)


def _infer_lane(given: _Given, _: Checkpoint | None, trace: TraceWriter) -> InferLane:
    """Of ms-swift's servers. Raises ConfigError for what they cannot be sent."""
    attempt, policy, limits = given.attempt, given.policy, given.limits
    vllm = given.rollouts.vllm
    assert limits is not None, "they are named"
    if vllm.sync_mode == "adapter":
        raise _refused("sync.mode", vllm.sync.mode, "sends adapters", "set sync.mode: full")
    prompts = [given.reader(record) for record in given.corpus.train[:CONTEXTS]]
    return InferLane(
        [_infer_api(given, one.base_url) for one in vllm.external],
        policy,
        swift_transfer(vllm.external, limits, policy.device),
        witness(prompts, given.rollouts, given.reader, given.tolerance),
        dtype=given.dtype,
        listen=Syncs(attempt, policy, trace),
        calls=Calls(attempt, trace),
    )


def _infer_api(given: _Given, address: str) -> InferApi:
    limits, size = given.limits or Limits(), given.rollouts.answers_a_call
    tokenizer = given.reader.vlm.tokenizer
    check = ReplyCheck(len(tokenizer), tokenizer)
    return InferApi(address, batch_size=size, limits=limits, check=check)


def _server_api(given: _Given, address: Serving) -> ServerApi:
    policy = given.policy
    vocabulary = int(policy.model.config.get_text_config().vocab_size)
    return ServerApi(address, limits=given.limits, check=ReplyCheck(vocabulary, policy.tokenizer))


def swift_transfer(servers: Sequence[Server], limits: Limits, device: torch.device) -> Transfer:
    """How weights reach ms-swift's servers: by NCCL, between GPUs alone. Raises ConfigError."""
    if device.type != "cuda":
        problem = "are sent weights by NCCL, and the trainer has no GPU"
        remedy = "serve with vLLM's OpenAI routes, or set rollout_backend: hf"
        raise _refused("server.routes", "infer", problem, remedy)
    return SwiftTransfer(
        servers,
        limits=limits,
        join=join_nccl(device, limits.timeout_s),
        memory=lambda size: torch.empty(size, dtype=torch.uint8, device=device),
    )


def _refused(field: str, value: str, problem: str, remedy: str) -> ConfigError:
    path = f"custom.extra.rollout_matching.vllm.{field}"
    return ConfigError([ConfigProblem(path, value, f"ms-swift's servers: {problem}", remedy)])


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
