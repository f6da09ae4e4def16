"""Gradient checkpointing (arXiv 1604.06174): keep each layer's input, compute the rest again.

Transformers' layers do it while they stand in training mode; here that mode is given to the
layers alone and only for one pass, so that no dropout inside them wakes up and sampling keeps its
cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers.modeling_layers import GradientCheckpointingLayer

from engine.contract.errors import RLLoopError
from engine.models import lora


def prepare(model: Any) -> None:
    """Raises RLLoopError for a model that cannot do it."""
    causal = model.get_base_model() if lora.adapted(model) else model
    if not causal.supports_gradient_checkpointing or not _layers(causal):
        raise RLLoopError.of(
            "optim.gradient_checkpointing",
            True,
            f"{type(causal).__name__} cannot compute its layers again",
            "set it to false",
        )
    # The older name is deprecated where the newer one exists.
    enable = getattr(
        causal, "activation_checkpointing_enable", causal.gradient_checkpointing_enable
    )
    enable({"use_reentrant": False})
    # Asked for by the other kind of checkpointing alone; it would grow a graph under frozen layers.
    causal.disable_input_require_grads()


@contextmanager
def recomputing(model: Any) -> Iterator[None]:
    """The forward and backward pass inside keep only the layers' inputs."""
    layers = _layers(model)
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False


def _layers(model: Any) -> list[GradientCheckpointingLayer]:
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
