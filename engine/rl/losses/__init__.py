"""Policy losses; one file each, with its paper and equation.

A loss turns what `Tokens` holds into a loss per token. Weighing it, adding the KL term and
bringing tokens to one number are the same for all of them (`combined_loss`).
"""

from engine.rl.losses.aggregation import masked_mean
from engine.rl.losses.combined import combined_loss
from engine.rl.losses.kl import k1, k2, k3
from engine.rl.losses.tokens import Tokens

__all__ = ["Tokens", "combined_loss", "k1", "k2", "k3", "masked_mean"]
