"""The memory envelope of an `rl_run`: one process that samples and trains in turns.

Knows the loop's knobs; what a model is made of stands in `engine.contract.envelope`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from engine.contract.envelope import (
    ADAM_MOMENTS,
    FP32,
    Envelope,
    ModelShape,
    gigabytes,
)
from engine.contract.rl.optim import OptimConfig

PROMPT_TOKENS = 512
"""Length that a prompt of a real model is taken to have: the data are not read for an estimate."""
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


class Knobs(Protocol):
    """What of an `rl_run` config decides about memory."""

    @property
    def base(self) -> str: ...
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


def rl_envelope(config: Knobs) -> Envelope | None:
    """What the run needs at most; None for a model that is not on this machine yet."""
    embedded = config.base.startswith("embedded:")
    shape = _EMBEDDED if embedded else ModelShape.of_folder(Path(config.base))
    if shape is None:
        return None
    length = (_EMBEDDED_PROMPT if embedded else PROMPT_TOKENS) + config.max_new_tokens
    trained = shape.parameters
    if config.tuning != "full":
        trained = shape.lora_parameters(config.lora_rank)
    tokens = _tokens_at_once(config, length)
    return Envelope(
        weights=gigabytes(shape.parameters * FP32),
        gradients=gigabytes(trained * FP32),
        optimizer=gigabytes(trained * FP32 * ADAM_MOMENTS),
        reference=gigabytes(trained * FP32) if config.kl_coef > 0 else 0.0,
        kv_cache=gigabytes(shape.kv_bytes(config.rollout_batch * length)),
        logits=gigabytes(_logit_bytes(config, shape, tokens)),
        activations=gigabytes(
            shape.activation_bytes(tokens, checkpointing=config.optim.gradient_checkpointing)
        ),
    )


def _tokens_at_once(config: Knobs, length: int) -> int:
    """Tokens of one forward and backward pass."""
    if config.optim.batching == "packed":
        return max(config.optim.pack_tokens, length)
    return config.micro_batch * length


def _logit_bytes(config: Knobs, shape: ModelShape, tokens: int) -> int:
    """In fp32, and never more at once than the configured piece."""
    at_once = min(tokens * shape.vocabulary * FP32, config.optim.logit_chunk_mib * 1024 * 1024)
    return at_once * _LOGIT_COPIES
