"""The one temperature convention of sampler, reference and trainer."""

from __future__ import annotations

import torch
from torch import Tensor


def log_softmax(logits: Tensor, temp: float) -> Tensor:
    """fp32 log-probabilities at a sampling temperature; 0 (greedy) reads them at 1."""
    return torch.log_softmax(logits.float() / (temp or 1.0), dim=-1)
