"""GRPO (arXiv 2402.03300, eq. 3): PPO's clipped ratio with group-relative advantages.

(1/G) Σ_i (1/|o_i|) Σ_t [min(r_t A, clip(r_t, 1−ε, 1+ε) A) − β·KL], r_t = π_θ / π_old per token.
"""

from __future__ import annotations

from engine.rl.loss_terms import PolicyTerm, Tokens, clipped_surrogate


def grpo(tokens: Tokens, low: float, high: float) -> PolicyTerm:
    """−min(r·A, clip(r)·A) with a ratio for each token."""
    return clipped_surrogate(tokens.ratio_BT(), tokens, low, high)
