"""Estimators of KL(π ‖ π_ref) from one token, with Δ = log π − log π_ref.

http://joschu.net/blog/kl-approx.html. What their values estimate is not what their gradients
pull at (arXiv 2506.09477): on-policy, the gradient of k2 is that of the reverse KL, k3's is that
of the forward KL, and k1's is zero on average, so that as a penalty it restrains nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor


def k1(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Δ: unbiased, of either sign, the largest variance."""
    return logprobs - reference


def k2(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Δ²/2: never negative, biased, small variance."""
    return (logprobs - reference).square() / 2


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """exp(−Δ) + Δ − 1: unbiased and never negative; GRPO's (arXiv 2402.03300, eq. 4)."""
    delta = logprobs - reference
    return torch.exp(-delta) + delta - 1


KL: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = MappingProxyType(
    {"k1": k1, "k2": k2, "k3": k3}
)
