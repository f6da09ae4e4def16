"""Updates that the clip bound takes away: the policy moves further than its loss allows."""

from __future__ import annotations

from engine.rl.guards.warnings.seen import CLIPPED, Finding, Seen, worst


def look(seen: Seen) -> Finding | None:
    """A large share of the last steps' tokens is clipped."""
    change = seen.change(CLIPPED)
    if change is None or change.now < seen.limits.clip_fraction:
        return None
    return Finding(
        "CLIPPED",
        change.now,
        f"{change.now:.0%} of the tokens lose their gradient to the clip bound ({change.first:.0%} "
        "in the first steps): the update goes further than the loss allows; lower lr, "
        "objective.epochs or buffer.max_staleness, or raise objective.clip_high",
        {"first": change.first, "now": change.now},
        worst,
    )
