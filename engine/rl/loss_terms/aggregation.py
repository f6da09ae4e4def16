"""From losses per token to one number, over the whole batch of an optimizer update.

The denominators are counted before the first micro-batch, so what a micro-batch adds is its share
of the whole: cutting the batch up differently changes no gradient. B rollouts, T positions.
"""

from __future__ import annotations

from torch import Tensor

from engine.contract.rl.objective import Aggregation


def masked_mean(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean over each row's marked positions, shape (B,)."""
    return (values_BT * mask_BT).sum(-1) / mask_BT.sum(-1)


def aggregate(
    losses_BT: Tensor,
    mask_BT: Tensor,
    counts_B: Tensor,
    how: Aggregation,
    denominator: int,
) -> Tensor:
    """A micro-batch's share of the update's loss, a scalar; `counts_B` says how often a row stands.

    sequence_mean: (1/N) Σ_i (1/|o_i|) Σ_t · sequence_sum: (1/N) Σ_i Σ_t ·
    token_mean: (1/Σ|o_i|) Σ_i Σ_t · constant: (1/(N·max_tokens)) Σ_i Σ_t
    """
    if how == "sequence_mean":
        losses_B = masked_mean(losses_BT, mask_BT)
    else:
        losses_B = (losses_BT * mask_BT).sum(-1)
    return (losses_B * counts_B).sum() / denominator
