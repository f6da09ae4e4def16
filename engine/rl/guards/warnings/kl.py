"""KL creeping: the policy walks away from where it began, and held-out rows gain nothing by it."""

from __future__ import annotations

import statistics

from engine.rl.guards.warnings.seen import KL, Finding, Seen, worst
from engine.verdict.verdicts import best_step

_GATES = 4
"""Gates without a new best after which growing KL has bought nothing."""
_GREW = 2.0


def look(seen: Seen) -> Finding | None:
    """High, or grown a good deal since the best gate."""
    change, limits = seen.change(KL), seen.limits
    if change is None:
        return None
    now = change.now_median
    since = _since_best(seen, now)
    high = now >= limits.kl_high
    if not high and since is None:
        return None
    gained = since or "expect losses at what is not trained, formats and instructions first"
    return Finding(
        "KL_CREEP",
        now,
        f"KL to the step-0 policy is {now:.3g} nats a token ({change.first_median:.3g} in the "
        f"first steps): {gained}; raise kl_coef or lower lr, and score what must not get worse",
        {"first": change.first_median, "now": now},
        worst,
    )


def remember(seen: Seen) -> None:
    """KL around a gate, for the gates after it."""
    last = seen.last(KL)
    if last:
        seen.memory.gate_kl[str(seen.state.step)] = statistics.median(last)


def _since_best(seen: Seen, now: float) -> str | None:
    """That it grew while no gate was better than the best; None where it did not."""
    best = best_step(seen.state.heldout_scores)
    if best is None or now < seen.limits.kl_creep or seen.state.gates_without_best() < _GATES:
        return None
    then = seen.memory.gate_kl.get(str(best))
    if then is None or now < _GREW * then:
        return None
    return f"it was {then:.3g} at the best gate, step {best}, and no gate since was better"
