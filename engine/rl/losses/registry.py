"""Policy losses by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from engine.contract.rl.objective import LossName
from engine.rl.losses.cispo import cispo
from engine.rl.losses.dapo import dapo
from engine.rl.losses.dr_grpo import dr_grpo
from engine.rl.losses.grpo import grpo
from engine.rl.losses.gspo import gspo
from engine.rl.losses.reinforce_kl import reinforce_kl
from engine.rl.losses.rloo import rloo
from engine.rl.losses.tokens import PolicyTerm, Tokens

PolicyLoss = Callable[[Tokens, float, float], PolicyTerm]
"""`(tokens, lowest ratio, highest ratio) → loss per token`."""

LOSSES: Mapping[LossName, PolicyLoss] = MappingProxyType(
    {
        "reinforce_kl": reinforce_kl,
        "grpo": grpo,
        "dr_grpo": dr_grpo,
        "rloo": rloo,
        "dapo": dapo,
        "gspo": gspo,
        "cispo": cispo,
    }
)
