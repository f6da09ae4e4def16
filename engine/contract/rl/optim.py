"""Section `optim`: how an update is computed and applied."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from engine.contract.section import Section


class OptimConfig(Section):
    """AdamW, its schedule, and what the passes through the model cost."""

    adam_beta1: float = Field(0.9, ge=0, lt=1)
    """Decay of AdamW's first moment."""
    adam_beta2: float = Field(0.999, ge=0, lt=1)
    """Decay of AdamW's second moment."""
    adam_eps: float = Field(1e-8, gt=0, lt=1)
    """AdamW's ε; 1e-4 damps the KL blow-ups of tiny gradients."""
    weight_decay: float = Field(0.0, ge=0, le=10)
    """AdamW's decoupled weight decay."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate goes from `lr` towards `lr · final_lr_share` over `max_steps`."""
    warmup_steps: int = Field(0, ge=0)
    """Steps over which the learning rate rises linearly to `lr` first."""
    final_lr_share: float = Field(0.0, ge=0, le=1)
    """Share of `lr` that a linear or cosine schedule falls to; the step behind the last would
    have it, so that the last one trains also where it is 0."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """`bf16`: matrix products in bfloat16, sampling included; trained weights, their moments and
    the log-probabilities stay fp32."""
    gradient_checkpointing: bool = False
    """Keep only each layer's input for the backward pass and compute the rest again."""
    batching: Literal["padded", "packed"] = "padded"
    """`packed`: rollouts behind one another in one row, without padding, blind to each other."""
    pack_tokens: int = Field(2048, ge=16, le=1_048_576)
    """With `batching: packed`, tokens in one pass; a longer rollout gets a pass of its own."""
    logit_chunk_mib: int = Field(64, ge=1, le=65_536)
    """Largest piece of the fp32 logits in memory at once; above it they are computed piecewise
    and again in the backward pass."""
    nonfinite: Literal["stop", "skip"] = "stop"
    """When a loss or gradient is NaN or infinite: end the run, or leave that update out. The
    weights never take it either way."""

    def lr_factor(self, step: int, max_steps: int) -> float:
        """Share of `lr` at a step, counted from 1. Never 0 at a step that trains.

        >>> [OptimConfig(schedule="linear").lr_factor(step, 4) for step in (1, 2, 3, 4)]
        [1.0, 0.75, 0.5, 0.25]
        >>> OptimConfig(schedule="linear", warmup_steps=2).lr_factor(1, 6)
        0.5
        """
        if step < self.warmup_steps:
            return step / self.warmup_steps
        if self.schedule == "constant":
            return 1.0
        peak = max(1, self.warmup_steps)
        done = min(1.0, (step - peak) / max(1, max_steps + 1 - peak))
        left = 1 - done if self.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
        return self.final_lr_share + (1 - self.final_lr_share) * left
