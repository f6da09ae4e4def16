"""REINFORCE leave-one-out (arXiv 2402.14740, section 3.1; Kool et al. 2019).

(1/k) Σ_i [R(y_i) − 1/(k−1) Σ_{j≠i} R(y_j)] · ∇ log π_θ(y_i): the whole completion is one action, so
its tokens' log-probabilities are summed, not averaged. Here the KL stays in the loss, where the
paper subtracts it from the reward.
"""

from __future__ import annotations

from engine.rl.loss_terms import PolicyTerm, Tokens


def rloo(tokens: Tokens, low: float, high: float) -> PolicyTerm:  # noqa: ARG001 - no ratio
    """−A·log π_θ(token), to be summed over the completion."""
    return PolicyTerm(-tokens.advantages_B1 * tokens.logprobs_BT)
