"""CISPO (arXiv 2506.13585, eq. 4 and 5): the importance weight is clipped, not the token.

(1/Σ|o_i|) Σ_i Σ_t sg(clip(r_t, 1−ε_l, 1+ε_h)) A · log π_θ: every token keeps a gradient, also the
rare ones whose ratio leaves the bounds first. The paper sets no lower bound and drops the KL.
"""

from __future__ import annotations

from engine.rl.loss_terms import PolicyTerm, Tokens


def cispo(tokens: Tokens, low: float, high: float) -> PolicyTerm:
    """−sg(clip(r))·A·log π_θ."""
    ratio_BT = tokens.ratio_BT().detach()
    weight_BT = ratio_BT.clamp(low, high)
    loss_BT = -weight_BT * tokens.advantages_B1 * tokens.logprobs_BT
    # Not what PPO would clip: the weight is capped whichever way the advantage points.
    capped_BT = (weight_BT != ratio_BT) & (tokens.advantages_B1 != 0)
    return PolicyTerm(loss_BT, capped_BT)
