"""Truncation rising: what is cut off is judged by the limit, not by what it would have said."""

from __future__ import annotations

from engine.rl.guards.examples import Judged
from engine.rl.guards.warnings.seen import LENGTH, TRUNCATED, Finding, Seen, longest


def look(seen: Seen) -> Finding | None:
    """Many are cut off, or more than at first."""
    change, length, limits = seen.change(TRUNCATED), seen.change(LENGTH), seen.limits
    if change is None:
        return None
    rose = change.sure and change.now - change.first >= limits.truncated_rise
    if change.now < limits.truncated_high and not rose:
        return None
    grown = ""
    if length is not None and length.sure and length.now > length.first:
        grown = f", completions grew from {length.first:.0f} to {length.now:.0f} tokens"
    return Finding(
        "TRUNCATED",
        change.now,
        f"{change.now:.1%} of the completions are cut off at max_new_tokens="
        f"{seen.config.max_new_tokens} ({change.first:.1%} in the first steps){grown}; raise "
        "max_new_tokens, or set objective.truncated: mask so that they are not learnt from",
        {"first": change.first, "now": change.now},
        _cut_off,
    )


def _cut_off(one: Judged) -> tuple[float, ...]:
    return (-float(one.rollout.truncated), *longest(one))
