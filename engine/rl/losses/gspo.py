"""GSPO (arXiv 2507.18071, eq. 5 and 7): one ratio for a whole completion.

s_i = (π_θ(y_i) / π_old(y_i))^(1/|y_i|); (1/G) Σ_i min(s_i A_i, clip(s_i, 1−ε_l, 1+ε_h) A_i) with
ε of a few 1e-4, because a mean over tokens moves so much less than a token.
"""

from __future__ import annotations

import torch

from engine.rl.loss_terms import PolicyTerm, Tokens, clipped_surrogate, masked_mean


def gspo(tokens: Tokens, low: float, high: float) -> PolicyTerm:
    """−min(s·A, clip(s)·A), the same for each token of a completion."""
    log_ratio_B = masked_mean(tokens.logprobs_BT - tokens.old_BT, tokens.mask_BT)
    return clipped_surrogate(torch.exp(log_ratio_B)[:, None], tokens, low, high)
