"""REINFORCE with a KL penalty against the step-0 policy. Shapes: B rollouts, T positions."""

from __future__ import annotations

import torch
from torch import Tensor


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """exp(−Δ) + Δ − 1 with Δ = log π − log π_ref: an unbiased, never negative KL estimate.

    http://joschu.net/blog/kl-approx.html
    """
    delta = logprobs - reference
    return torch.exp(-delta) + delta - 1


def reinforce_kl(
    logprobs_BT: Tensor,
    reference_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    kl_coef: float,
) -> Tensor:
    """Loss of each rollout, shape (B,).

    The mean over the rollout's completion tokens of −A·log π + kl_coef·K3.
    """
    per_token_BT = -advantages_B[:, None] * logprobs_BT + kl_coef * k3(logprobs_BT, reference_BT)
    return masked_mean(per_token_BT, mask_BT)


def masked_mean(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean over each row's marked positions, shape (B,)."""
    return (values_BT * mask_BT).sum(-1) / mask_BT.sum(-1)
