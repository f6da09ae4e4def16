"""Sizes of an update's whole batch: what summed token losses are divided by. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

from engine.contract.rl.objective import Aggregation


@dataclass(frozen=True)
class Denominators:
    """Counted before the first micro-batch, so that each adds its share of the whole."""

    sequences: int
    """Rollouts that count, whether or not they have a loss."""
    tokens: int
    """Their completion tokens."""
    max_tokens: int
    """Longest possible completion: dr_grpo's constant."""

    def of(self, how: Aggregation) -> int:
        """The number to divide by.

        >>> Denominators(sequences=4, tokens=10, max_tokens=8).of("constant")
        32
        """
        if how == "token_mean":
            return self.tokens
        if how == "constant":
            return self.sequences * self.max_tokens
        return self.sequences
