"""What a config may say but has gone wrong before: said when it is enqueued, never refused.

Knows settings only; whether the run collapses is the collapse guard's to see.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.contract.errors import ConfigProblem
from engine.contract.rl.objective import ObjectiveConfig

COLLAPSED_LR = 5e-5
COLLAPSED_KL_COEF = 0.001


def cautions(lr: float, kl_coef: float, objective: ObjectiveConfig) -> Sequence[ConfigProblem]:
    """One entry a caution, in the form of a config problem."""
    found: list[ConfigProblem] = []
    if lr >= COLLAPSED_LR and kl_coef <= COLLAPSED_KL_COEF:
        found.append(
            ConfigProblem(
                "lr",
                lr,
                f"with kl_coef={kl_coef:g} is what collapsed within 15 steps in experiments",
                "lr 1e-6 with kl_coef 0.001 stayed stable, as did lr 1e-5 with kl_coef 0.04",
            )
        )
    if objective.kl == "k1" and kl_coef > 0:
        found.append(
            ConfigProblem(
                "objective.kl",
                "k1",
                "as a penalty has no gradient on average, so it restrains nothing",
                "use k3 or k2, or set kl_coef to 0",
            )
        )
    return found
