"""Form paid instead of correctness: the reward rises by what is paid beside the answer."""

from __future__ import annotations

from engine.rl.guards.examples import Judged, Order
from engine.rl.guards.warnings.seen import PAID, SPREAD, Finding, Seen, best_paid, earned_series

_AT_MOST = 2.0
"""Standard errors above what was measured: so much of the rise may be correctness."""


def look(seen: Seen) -> Finding | None:
    """After the steps in which form may come first, hardly any of the rise is correctness."""
    name, weight = earned_series(seen.config)
    paid, earned, spread = seen.change(PAID), seen.change(name), seen.change(SPREAD)
    limits = seen.limits
    if paid is None or earned is None or spread is None or seen.state.step < limits.form_steps:
        return None
    if not paid.sure or paid.rise <= 0 or paid.rise < limits.form_rise * spread.first:
        return None
    correct = weight * earned.rise
    if correct + _AT_MOST * abs(weight) * earned.error > limits.earned_share * paid.rise:
        return None
    return Finding(
        "FORM_PAID",
        paid.rise,
        f"the reward rose from {paid.first:.3g} to {paid.now:.3g}, and {correct:.2g} of that is "
        f"correctness ({name}): the rest is paid beside the answer; read the best paid "
        "completions, and lower the weight of what pays form, or let it fade (format)",
        {"rise": paid.rise, "correct": correct},
        _paid_though_wrong(name),
    )


def _paid_though_wrong(name: str) -> Order:
    part = name.partition("/")[2]

    def order(one: Judged) -> tuple[float, ...]:
        earned = one.verdict.parts.get(part, one.verdict.strict)
        return (earned or 0.0, *best_paid(one))

    return order
