"""What all policy losses share: their input, the KL term, sampler weights, and their sum.

The denominators of a sum are counted before the first micro-batch, so what a micro-batch adds is
its share of the whole: cutting the batch up differently changes no gradient.
KL(π ‖ π_ref) is estimated from one token, with Δ = log π − log π_ref
(http://joschu.net/blog/kl-approx.html). What the estimators' values estimate is not what their
gradients pull at (arXiv 2506.09477): on-policy, the gradient of k2 is that of the reverse KL, k3's
is that of the forward KL, and k1's is zero on average, so that as a penalty it restrains nothing.

Shapes: B rollouts, T completion positions.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

import torch
from torch import Tensor

from engine.contract.rl.objective import Aggregation, LossName, ObjectiveConfig


@dataclass(frozen=True)
class Tokens:
    """Log-probabilities of the rollouts' tokens with the rollouts' advantages."""

    logprobs_BT: Tensor  # noqa: N815 - shape suffix
    """log π_θ, with gradient."""
    old_BT: Tensor  # noqa: N815 - shape suffix
    """log π_old of the trainer itself before the step's first update; no gradient."""
    advantages_B: Tensor  # noqa: N815 - shape suffix
    mask_BT: Tensor  # noqa: N815 - shape suffix
    """1 where a completion's token stands; every row has at least one."""

    @property
    def advantages_B1(self) -> Tensor:  # noqa: N802 - shape suffix
        """One column, to be spread over the tokens."""
        return self.advantages_B[:, None]

    def ratio_BT(self) -> Tensor:  # noqa: N802 - shape suffix
        """π_θ / π_old of each token: exactly 1 while the weights are those that scored `old`."""
        return torch.exp(self.logprobs_BT - self.old_BT)


@dataclass(frozen=True)
class PolicyTerm:
    """A loss per token, KL not included. What stands outside the mask has no meaning."""

    loss_BT: Tensor  # noqa: N815 - shape suffix
    clipped_BT: Tensor | None = None  # noqa: N815 - shape suffix
    """True where the clip bound decided, so that the token has no gradient (in cispo: that of the
    capped weight); None for a loss that clips nothing."""


def outside(ratio_BT: Tensor, tokens: Tokens, low: float, high: float) -> Tensor:
    """Where clipping the ratio takes effect: the ratio moved past the bound the advantage asks for.

    Bool, shape (B, T).
    """
    over = (ratio_BT > high) & (tokens.advantages_B1 > 0)
    under = (ratio_BT < low) & (tokens.advantages_B1 < 0)
    return (over | under).expand_as(tokens.mask_BT)


def clipped_surrogate(ratio_BT: Tensor, tokens: Tokens, low: float, high: float) -> PolicyTerm:
    """−min(r·A, clip(r, low, high)·A): PPO's objective (arXiv 1707.06347, eq. 7), negated.

    `ratio_BT` may be (B, 1), one ratio for a whole rollout.
    """
    plain_BT = ratio_BT * tokens.advantages_B1
    bounded_BT = ratio_BT.clamp(low, high) * tokens.advantages_B1
    loss_BT = -torch.minimum(plain_BT, bounded_BT).expand_as(tokens.mask_BT)
    return PolicyTerm(loss_BT, outside(ratio_BT, tokens, low, high))


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

PolicyLoss = Callable[[Tokens, float, float], PolicyTerm]
"""`(tokens, lowest ratio, highest ratio) → loss per token`."""


@cache
def policy_loss(name: LossName) -> PolicyLoss:
    """The function `name` of the file `engine/rl/losses/NAME.py`."""
    found: PolicyLoss = getattr(importlib.import_module(f"engine.rl.losses.{name}"), name)
    return found


def combined_loss(
    objective: ObjectiveConfig,
    tokens: Tokens,
    *,
    kl_coef: float,
    reference_BT: Tensor,
    counts_B: Tensor,
    denominator: int,
    weights_BT: Tensor | None = None,
) -> tuple[Tensor, PolicyTerm]:
    """A micro-batch's share of the update's loss, a scalar, and the policy term it came from.

    Per token weight · policy term + kl_coef · KL; `counts_B` says how often a rollout stands and
    `denominator` belongs to the whole update. The weights correct for the sampler and are
    constants; the KL term is not weighted.
    """
    term = policy_loss(objective.loss)(tokens, *objective.clip_bounds)
    losses_BT = term.loss_BT if weights_BT is None else term.loss_BT * weights_BT
    if kl_coef:
        losses_BT = losses_BT + kl_coef * KL[objective.kl](tokens.logprobs_BT, reference_BT)
    how = objective.aggregation_used
    return aggregate(losses_BT, tokens.mask_BT, counts_B, how, denominator), term
