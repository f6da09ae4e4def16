"""Form paid instead of correctness: the reward rises by what is paid beside the answer, or more
held-out rows are solved only because more of them can be read.
"""

from __future__ import annotations

from engine.contract.asked import asked
from engine.contract.intervals import compare
from engine.rewards.adapter import Reason
from engine.rl.guards.examples import Judged, Order
from engine.rl.guards.warnings.seen import PAID, SPREAD, Finding, Seen, best_paid, earned_series
from engine.rl.state import read_of, solved_of
from engine.verdict.benches import Rows, is_format_only

_AT_MOST = 2.0
"""Standard errors above what was measured: so much of the rise may be correctness."""
_CHANCE = 0.01
"""Of a rise of held-out: it is asked about at every gate."""


def look(seen: Seen) -> Finding | None:
    """After the steps in which form may come first."""
    if seen.state.step < seen.limits.form_steps:
        return None
    return _paid_beside(seen) or _read_alone(seen)


def _paid_beside(seen: Seen) -> Finding | None:
    """Hardly any of the reward's rise is correctness."""
    name, weight = earned_series(seen.config)
    paid, earned, spread = seen.change(PAID), seen.change(name), seen.change(SPREAD)
    limits = seen.limits
    if paid is None or earned is None or spread is None:
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
        f"correctness ({name}): the rest is paid beside the answer{_forms(seen)}; read the best "
        "paid completions, and lower the weight of what pays form, or let it fade (format)",
        {"rise": paid.rise, "correct": correct},
        _paid_though_wrong(name),
    )


def _read_alone(seen: Seen) -> Finding | None:
    """Held-out rose beyond chance, and not where an answer could be read at both gates."""
    kept = seen.state.heldout_solved
    if len(kept) < 2 or len(kept[min(kept)]) != len(seen.items):
        return None
    first, last = (Rows(solved_of(kept[s]), read_of(kept[s])) for s in (min(kept), max(kept)))
    asks = [asked(item.question.prompt) for item in seen.items]
    found = compare(first.solved, last.solved, asks)
    if not found.n or found.lift <= 0 or found.p_value >= _CHANCE:
        return None
    if not is_format_only(first, last, asks):
        return None
    became = [item for item, was in zip(seen.items, first.read, strict=True) if not was]
    unread_first, unread_now = first.unread or 0.0, last.unread or 0.0
    return Finding(
        "FORM_PAID",
        found.lift,
        f"held-out rose from {found.before:.1%} to {found.after:.1%} by what can be read: no "
        f"answer was found in {unread_first:.0%} of the rows at first and in {unread_now:.0%} now"
        f"{_forms(seen)}, and of those that could be read at both gates no more are right; read "
        "them, and score a bench whose prompt or verifier asks for another form (heldout)",
        {"rise": found.lift, "unread_first": unread_first, "unread_now": unread_now},
        best_paid,
        [item for item in became if item.verdict.reason is not Reason.UNPARSED],
    )


def _forms(seen: Seen) -> str:
    """Which form of an answer most more of the held-out completions have, in brackets."""
    now, first = seen.forms(), seen.memory.forms or {}
    grown = {name: share - first.get(name, 0.0) for name, share in now.items()}
    name = max(grown, key=lambda one: grown[one], default="")
    if not name or grown[name] < 0.1:
        return ""
    return f" ({name} at the gates: {first.get(name, 0.0):.0%} at first, {now[name]:.0%} now)"


def _paid_though_wrong(name: str) -> Order:
    part = name.partition("/")[2]

    def order(one: Judged) -> tuple[float, ...]:
        earned = one.verdict.parts.get(part, one.verdict.strict)
        return (earned or 0.0, *best_paid(one))

    return order
