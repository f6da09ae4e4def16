"""Ties rising: groups whose completions all earn the same teach nothing, and cost the same."""

from __future__ import annotations

from engine.rl.guards.warnings.seen import TIES, Finding, Seen, longest, worst

_EASY, _HARD = 0.85, 0.15
"""Success rates beyond which ties come from rows that are too easy, or too hard."""


def look(seen: Seen) -> Finding | None:
    """Most groups tie, or many more than at first."""
    change, limits = seen.change(TIES), seen.limits
    if change is None:
        return None
    rose = change.sure and change.now - change.first >= limits.ties_rise
    if change.now < limits.ties_high and not rose:
        return None
    pool = seen.pool
    why, remedy = "", "choose other rows by their pass@k, a larger group_k or a higher temp"
    if pool is not None and pool >= _EASY:
        why, remedy = f", because {pool:.0%} are right", "choose harder rows"
    elif pool is not None and pool <= _HARD:
        why = f", because {pool:.0%} are right"
        remedy = "choose easier rows, a verifier that reads what the policy writes"
        remedy += ", or a larger group_k"
    return Finding(
        "TIES_HIGH",
        1 / max(1 - change.now, 1e-3),
        f"in {change.now:.0%} of the groups all completions earn the same ({change.first:.0%} in "
        f"the first steps){why}: such groups cost their rollouts and teach nothing; {remedy}",
        {"first": change.first, "now": change.now},
        longest if pool is not None and pool >= _EASY else worst,
    )
