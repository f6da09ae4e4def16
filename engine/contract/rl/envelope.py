"""The memory envelope of an `rl_run`: one process that samples and trains in turns, or two.

Knows the loop's knobs; what a model is made of stands in `engine.contract.envelope`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple, Protocol

from engine.contract.envelope import (
    ADAM_MOMENTS,
    FP32,
    Checkpoints,
    Envelope,
    ModelShape,
    gigabytes,
)
from engine.contract.rl.buffer import BufferConfig
from engine.contract.rl.format import FormatConfig
from engine.contract.rl.optim import OptimConfig
from engine.contract.rl.prompting import PromptingConfig
from engine.contract.served import RunVLLMConfig

PROMPT_TOKENS = 512
"""Length that a prompt of a real model is taken to have where nobody read the data."""
_TEMPLATE_TOKENS = 64
"""Of a chat template around a question."""
_BYTES_A_TOKEN = 3
"""Of a long text, at the fewest; a short one may be digits, a token a byte."""
_LOGIT_COPIES = 3
"""Logits, their softmax and the gradient."""

_EMBEDDED = ModelShape(
    parameters=400_000,
    layers=2,
    hidden=128,
    intermediate=384,
    heads=8,
    kv_heads=4,
    head_dim=16,
    vocabulary=16,
)
_EMBEDDED_PROMPT = 16


class Rows(NamedTuple):
    """What was found when the data were looked at."""

    n: int
    longest: int | None
    """Bytes of the longest prompt."""


class Knobs(Protocol):
    """What of an `rl_run` config decides about memory."""

    @property
    def base(self) -> str: ...
    @property
    def ranks(self) -> int: ...
    @property
    def tuning(self) -> str: ...
    @property
    def lora_rank(self) -> int: ...
    @property
    def kl_coef(self) -> float: ...
    @property
    def max_new_tokens(self) -> int: ...
    @property
    def micro_batch(self) -> int: ...
    @property
    def rollout_batch(self) -> int: ...
    @property
    def optim(self) -> OptimConfig: ...
    @property
    def rollout_backend(self) -> str: ...
    @property
    def vllm(self) -> RunVLLMConfig: ...
    @property
    def buffer(self) -> BufferConfig: ...
    @property
    def draws_ahead(self) -> bool: ...
    @property
    def tasks_per_step(self) -> int: ...
    @property
    def group_k(self) -> int: ...
    @property
    def heldout_frac(self) -> float: ...
    @property
    def prompting(self) -> PromptingConfig: ...
    @property
    def format(self) -> FormatConfig: ...


class Stored(Knobs, Protocol):
    """And what of it decides about the disk."""

    @property
    def max_steps(self) -> int: ...
    @property
    def heldout_every(self) -> int: ...
    @property
    def save_every(self) -> int: ...
    @property
    def keep_checkpoints(self) -> int: ...


def rl_envelope(config: Knobs, rows: Rows | None = None) -> Envelope | None:
    """What the run needs at most; None for a model that is not on this machine yet.

    Counted is what there is: a step's rollouts where a batch could hold more, held-out rows and the
    longest prompt where somebody read the data.
    """
    embedded = config.base.startswith("embedded:")
    shape = _EMBEDDED if embedded else ModelShape.of_folder(Path(config.base))
    if shape is None:
        return None
    length = (_EMBEDDED_PROMPT if embedded else _prompt(config, rows)) + config.max_new_tokens
    sequences = _sequences(config, rows)
    trained = shape.parameters
    if config.tuning != "full":
        trained = shape.lora_parameters(config.lora_rank)
    tokens = _tokens_at_once(config, length)
    served = config.rollout_backend == "vllm"
    return Envelope(
        weights=gigabytes(shape.parameters * FP32),
        gradients=gigabytes(trained * FP32),
        optimizer=gigabytes(trained * FP32 * ADAM_MOMENTS),
        reference=gigabytes(trained * FP32 * _kept(config)),
        # An adapter is read again on the base that is there.
        proof=gigabytes((shape.parameters if config.tuning == "full" else trained) * FP32),
        kv_cache=0.0 if served else gigabytes(shape.kv_bytes(sequences * length)),
        serving=_serving_gb(config, shape, length) if served else 0.0,
        logits=gigabytes(_logit_bytes(config, shape, tokens)),
        activations=gigabytes(
            shape.activation_bytes(tokens, checkpointing=config.optim.gradient_checkpointing)
        ),
    ).of_ranks(config.ranks)


def _kept(config: Knobs) -> int:
    """Copies of what trains: the step-0 policy, and the weights of each batch drawn ahead."""
    return int(config.kl_coef > 0) + config.draws_ahead * config.buffer.max_staleness


def rl_checkpoints(config: Stored) -> Checkpoints | None:
    """Weights that are trained, and AdamW's two moments of each, in fp32; adapters bring no base.

    Beside the newest stand step 0, the picked one, and the one that is being written.
    """
    embedded = config.base.startswith("embedded:")
    shape = _EMBEDDED if embedded else ModelShape.of_folder(Path(config.base))
    if shape is None:
        return None
    trained = shape.parameters
    if config.tuning != "full":
        trained = shape.lora_parameters(config.lora_rank)
    gates = math.ceil(config.max_steps / config.heldout_every)
    written = min(config.max_steps, config.max_steps // config.save_every + gates) + 1
    each = gigabytes(trained * FP32 * (1 + ADAM_MOMENTS))
    return Checkpoints(each, config.keep_checkpoints + 3, written)


def _prompt(config: Knobs, rows: Rows | None) -> int:
    """Tokens of the longest prompt, at most about."""
    if rows is None or rows.longest is None:
        return PROMPT_TOKENS
    around = config.prompting
    written = (around.system_prompt, around.form, around.assistant_prefix)
    read = (1 + config.format.shots) * rows.longest + sum(len(one.encode()) for one in written)
    tokens = read if read <= PROMPT_TOKENS else max(PROMPT_TOKENS, read // _BYTES_A_TOKEN)
    return tokens + _TEMPLATE_TOKENS


def _rollouts(config: Knobs) -> int:
    """Of a step."""
    return config.tasks_per_step * config.group_k


def _sequences(config: Knobs, rows: Rows | None) -> int:
    """Decoded at once: of a step, or of a gate, which asks every held-out row once."""
    if rows is None:
        return config.rollout_batch
    asked = math.ceil(rows.n * config.heldout_frac)
    return min(config.rollout_batch, max(_rollouts(config), asked))


def serving_kv_gib(config: Knobs, shape: ModelShape, length: int) -> int:
    """Whole GiB of keys and values that a server needs for `rollout_batch` sequences at once."""
    return shape.served_kv_gib(config.rollout_batch * length, _served_width(config))


def _serving_gb(config: Knobs, shape: ModelShape, length: int) -> float:
    """Of the servers that the run starts, each with a copy of its own.

    What a share of a GPU (NIGHTLANE_GPU_UTIL) takes beyond that is memory of the device, which no
    config tells the size of.
    """
    vllm = config.vllm
    servers = 0 if vllm.external else vllm.launch.replicas
    return servers * shape.served_gb(config.rollout_batch * length, _served_width(config))


def _served_width(config: Knobs) -> int:
    """Bytes of a number in the server: it computes as the trainer does."""
    return FP32 if config.optim.precision == "fp32" else FP32 // 2


def _tokens_at_once(config: Knobs, length: int) -> int:
    """Tokens of one forward and backward pass."""
    every = _rollouts(config) * length
    if config.optim.batching == "packed":
        return min(every, max(config.optim.pack_tokens, length))
    return min(every, config.micro_batch * length)


def _logit_bytes(config: Knobs, shape: ModelShape, tokens: int) -> int:
    """In fp32, and never more at once than the configured piece."""
    at_once = min(tokens * shape.vocabulary * FP32, config.optim.logit_chunk_mib * 1024 * 1024)
    return at_once * _LOGIT_COPIES
