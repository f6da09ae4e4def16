"""REINFORCE with group-relative advantages: the default.

Williams 1992, https://doi.org/10.1007/BF00992696: ∇J = E[A · ∇ log π_θ(y)], with GRPO's advantages
as baseline. Per rollout the mean over its tokens of −A·log π + kl_coef·KL, then the mean over the
rollouts used. One update on fresh rollouts, so there is no ratio.
"""

from __future__ import annotations

from engine.rl.loss_terms import PolicyTerm, Tokens


def reinforce_kl(tokens: Tokens, low: float, high: float) -> PolicyTerm:  # noqa: ARG001 - no ratio
    """−A·log π_θ(token)."""
    return PolicyTerm(-tokens.advantages_B1 * tokens.logprobs_BT)
