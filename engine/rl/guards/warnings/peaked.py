"""Peaked at a gate and falling since. That the pool rises meanwhile is the inversion alarm's."""

from __future__ import annotations

from collections.abc import Sequence

from engine.evaluate.gate import Scored
from engine.rl.guards.warnings.seen import Finding, Seen, worst
from engine.verdict.inversion import falls_since_best


def look(seen: Seen) -> Finding | None:
    """The last gates are all worse than the best one, by more than chance."""
    state = seen.state
    found = falls_since_best(state.outcomes(), seen.config.guard.inversion_gates)
    if found is None or (state.inversion or {}).get("best") == found.best:
        return None
    fall = -found.last.lift
    if fall < seen.limits.peaked_fall:
        return None
    best, now = found.last.before, found.last.after
    return Finding(
        "PEAKED",
        fall,
        f"held-out was best at step {found.best} ({best:.1%}) and is {now:.1%} now, "
        f"{found.last.lost} rows lost and {found.last.gained} won; that gate's checkpoint is kept "
        "and picked: stop here (heldout_patience does it by itself), or lower lr or raise kl_coef",
        {"best_step": found.best, "best": best, "now": now},
        worst,
        _lost(seen, found.best),
    )


def _lost(seen: Seen, best: int) -> Sequence[Scored]:
    """Rows of this gate that the best one solved."""
    solved = seen.state.outcomes()[best]
    pairs = zip(solved, seen.items, strict=False)
    return [item for was, item in pairs if was and item.success is False]
