"""The inversion guard: the pool goes up while held-out goes down.

A policy that learns to please the verifier on its training rows shows a rising pool; whether it
learnt anything is what held-out says. Torch-free; knows counts, not rollouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.contract.intervals import PairedComparison, compare
from engine.contract.rl.guard import GuardConfig
from engine.verdict.trend import pool_of, rise
from engine.verdict.verdicts import best_step

_AROUND = 2
"""Steps before and after the best gate's own that its pool is read from."""
_P = 0.01
"""The best gate was picked for being high, so a fall from it must be plainer than a fall; and the
pool is looked at after every gate."""


@dataclass(frozen=True)
class Inversion:
    """`best` and `step` are gates; the differences are shares of one."""

    best: int
    step: int
    heldout_fall: float
    pool_rise: float

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)

    def text(self) -> str:
        """What a person reads."""
        return (
            f"since step {self.best} the pool rose by {self.pool_rise * 100:.1f} points while "
            f"held-out fell by {self.heldout_fall * 100:.1f}: the reward is being gamed, or the "
            "training rows learnt by heart"
        )


def find_inversion(
    outcomes: Mapping[int, Sequence[bool | None]],
    scores: Mapping[int, float],
    config: GuardConfig,
    groups: Mapping[int, str] | None = None,
) -> Inversion | None:
    """Judge the newest gate. `outcomes`: success of each `select` row by gate; `scores` and
    `groups`: the pool's, by step (`engine.verdict.trend.pool_of`).

    Met when the last `inversion_gates` gates all lie behind the best one and each is worse than
    it (exact McNemar test, p < 0.01), and the pool over the steps since the last gate is higher
    than around the best gate by `inversion_pool_rise` and by more than chance (p < 0.01).
    """
    found = falls_since_best(outcomes, config.inversion_gates)
    if found is None:
        return None
    best, (*_, before_last, last) = found.best, sorted(outcomes)
    size = max(2, last - before_last)
    # Step s samples from the weights of step s − 1, so best + 1 is the best gate's own pool.
    pool = pool_of(scores, groups or {})
    around = range(best + 1 - _AROUND, best + 2 + _AROUND)
    newest = range(last - size + 1, last + 1)
    before, after = ([one for s in steps for one in pool.get(s, ())] for steps in (around, newest))
    rose = rise(before, after, _P)
    if rose.low <= 0 or rose.by < config.inversion_pool_rise:
        return None
    return Inversion(best, last, -found.last.lift, rose.by)


@dataclass(frozen=True)
class Fall:
    """`best` is a gate; `last` compares it with the newest."""

    best: int
    last: PairedComparison


def falls_since_best(outcomes: Mapping[int, Sequence[bool | None]], gates: int) -> Fall | None:
    """Whether the last so many gates all come after the best one and are each worse than it (exact
    McNemar test, p < 0.01).
    """
    last = sorted(outcomes)[-gates:]
    best = best_step({step: _rate(solved) for step, solved in outcomes.items()})
    if best is None or best in last or len(last) < gates:
        return None
    falls = [compare(outcomes[best], outcomes[gate]) for gate in last]
    if any(fall.lift >= 0 or fall.p_value >= _P for fall in falls):
        return None
    return Fall(best, falls[-1])


def _rate(outcomes: Sequence[bool | None]) -> float:
    """Of the rows that were judged."""
    judged = [one for one in outcomes if one is not None]
    return sum(judged) / len(judged) if judged else 0.0
