"""What a policy loss sees and what it gives back. Shapes: B rollouts, T completion positions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
