"""DAPO (arXiv 2503.14476, eq. 8): GRPO with four changes and without KL.

Clip-higher (1−0.2 … 1+0.28), the mean over all tokens of the batch, a reward that falls towards
the length limit (eq. 13, `engine.rl.advantages`), and groups without signal replaced by others
(eq. 11, the loop).
"""

from __future__ import annotations

from engine.rl.loss_terms import PolicyTerm, Tokens
from engine.rl.losses.grpo import grpo


def dapo(tokens: Tokens, low: float, high: float) -> PolicyTerm:
    """GRPO's term within the wider upper bound."""
    return grpo(tokens, low, high)
