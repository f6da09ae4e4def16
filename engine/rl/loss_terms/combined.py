"""The whole loss of a micro-batch: policy term, sampler weights, KL, aggregation."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache

from torch import Tensor

from engine.contract.rl.objective import LossName, ObjectiveConfig
from engine.rl.loss_terms.aggregation import aggregate
from engine.rl.loss_terms.kl import KL
from engine.rl.loss_terms.tokens import PolicyTerm, Tokens

PolicyLoss = Callable[[Tokens, float, float], PolicyTerm]
"""`(tokens, lowest ratio, highest ratio) → loss per token`."""


@cache
def policy_loss(name: LossName) -> PolicyLoss:
    """The function `name` of the file `engine/rl/losses/NAME.py`."""
    found: PolicyLoss = getattr(importlib.import_module(f"engine.rl.losses.{name}"), name)
    return found


def combined_loss(
    objective: ObjectiveConfig,
    tokens: Tokens,
    *,
    kl_coef: float,
    reference_BT: Tensor,
    counts_B: Tensor,
    denominator: int,
    weights_BT: Tensor | None = None,
) -> tuple[Tensor, PolicyTerm]:
    """A micro-batch's share of the update's loss, a scalar, and the policy term it came from.

    Per token weight · policy term + kl_coef · KL; `counts_B` says how often a rollout stands and
    `denominator` belongs to the whole update. The weights correct for the sampler and are
    constants; the KL term is not weighted.
    """
    term = policy_loss(objective.loss)(tokens, *objective.clip_bounds)
    losses_BT = term.loss_BT if weights_BT is None else term.loss_BT * weights_BT
    if kl_coef:
        losses_BT = losses_BT + kl_coef * KL[objective.kl](tokens.logprobs_BT, reference_BT)
    how = objective.aggregation_used
    return aggregate(losses_BT, tokens.mask_BT, counts_B, how, denominator), term
