"""Dr. GRPO (arXiv 2503.20783, section 3.2): GRPO without its two biases.

The advantage is r − mean, not divided by the deviation (which favours questions that are nearly
solved or nearly hopeless), and token losses are summed and divided by a constant instead of by the
completion's own length (which favours long wrong answers). The paper drops the KL term.
"""

from __future__ import annotations

from engine.rl.loss_terms import PolicyTerm, Tokens
from engine.rl.losses.grpo import grpo


def dr_grpo(tokens: Tokens, low: float, high: float) -> PolicyTerm:
    """GRPO's term; the differences stand in its advantages and its aggregation."""
    return grpo(tokens, low, high)
