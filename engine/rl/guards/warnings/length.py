"""Length paid instead of correctness: longer completions earn more, held-out rows do not follow.

That completions grow is no fault where held-out grows too: policies that reason write more.
"""

from __future__ import annotations

import math
import statistics

from engine.rl.guards.warnings.seen import (
    LENGTH,
    ONE_SIDED,
    PAID,
    SPREAD,
    Finding,
    Seen,
    best_paid,
)

_GATES = 3
"""The last gates, whose mean is held against the first."""


def look(seen: Seen) -> Finding | None:
    """The reward rose with the length, and held-out by next to nothing of it, chance allowed."""
    length, paid, spread = seen.change(LENGTH), seen.change(PAID), seen.change(SPREAD)
    limits, scores = seen.limits, seen.state.heldout_scores
    if length is None or paid is None or spread is None or spread.first <= 0 or len(scores) < 2:
        return None
    growth = length.now / max(length.first, 1.0) - 1
    rise = (paid.now - paid.first) / spread.first
    if not (length.sure and growth >= limits.length_growth):
        return None
    if not (paid.sure and rise >= limits.length_rise):
        return None
    first, *others = sorted(scores)
    before, last = scores[first], others[-_GATES:]
    after = statistics.fmean(scores[gate] for gate in last)
    spread_of_rows = math.sqrt(max(before * (1 - before), 0.05))
    rows = len(seen.state.heldout_solved.get(first, ""))
    error = spread_of_rows * math.sqrt((1 + 1 / len(last)) / rows) if rows else 0.0
    if (after - before + ONE_SIDED * error) / spread_of_rows >= limits.earned_share * rise:
        return None
    return Finding(
        "LENGTH_PAID",
        1 + growth,
        f"completions grew by {growth:.0%} ({length.first:.0f} to {length.now:.0f} tokens) and the "
        f"reward from {paid.first:.3g} to {paid.now:.3g}, held-out rows from {before:.1%} to "
        f"{after:.1%}: length is paid, not correctness; read the best paid completions, and charge "
        "for length (objective.overlong_buffer) or mend the reward",
        {"length_first": length.first, "length_now": length.now, "reward_rise": rise},
        best_paid,
    )
