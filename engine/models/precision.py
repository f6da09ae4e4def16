"""Mixed precision: bfloat16 matrix products around fp32 trained weights (arXiv 1710.03740).

What trains, and the log-probabilities, stay fp32; what is frozen is kept in bfloat16, which is
half of the memory of a LoRA run's base. Knows no optimizer.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch

Precision = Literal["fp32", "bf16"]


def prepare(model: Any, precision: Precision) -> None:
    """Store the frozen weights as the precision asks; the trained ones stay fp32."""
    if precision == "fp32":
        return
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(torch.bfloat16)


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """Every pass through a policy's model stands inside: sampler, reference and trainer alike.

    Weights must not change inside a block: it keeps their bfloat16 copies.
    """
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
