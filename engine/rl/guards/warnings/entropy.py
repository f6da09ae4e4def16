"""Entropy running out: soon all completions of a prompt are the same, and nothing is ranked.

That it falls is normal (Cui et al. 2025, arXiv 2505.22617); that it ends before the run does, with
rows still unsolved, is not.
"""

from __future__ import annotations

import math
import statistics

from engine.rl.guards.examples import Judged
from engine.rl.guards.warnings.seen import ENTROPY, Finding, Seen

_SOLVED = 0.9
"""A pool solved to this share needs no more exploring."""


def look(seen: Seen) -> Finding | None:
    """Half of it is gone, and at its pace nearly all will be before the last step."""
    change, limits = seen.change(ENTROPY), seen.limits
    if change is None or change.first <= 0 or (seen.pool or 0.0) >= _SOLVED:
        return None
    share = change.now / change.first
    if not change.sure or share >= limits.entropy_share:
        return None
    steps = steps_until(seen, limits.entropy_left * change.first)
    if steps is None or steps > seen.left:
        return None
    floor = f"under {limits.entropy_left:.0%} of that"
    when = f"{floor} in about {steps:.0f} steps" if steps else f"{floor} already"
    return Finding(
        "ENTROPY_LOW",
        min(change.first / max(change.now, 1e-12), 1 / limits.entropy_left),
        f"entropy is {change.now:.3g} nats a token, {share:.0%} of the first steps' "
        f"{change.first:.3g}, and at its pace {when}: completions of a prompt become alike; "
        "raise temp, objective.clip_high or kl_coef, or lower lr",
        {"first": change.first, "now": change.now, "steps_left": steps},
        _most_certain,
    )


def steps_until(seen: Seen, floor: float) -> float | None:
    """Steps until entropy is at `floor` if it goes on falling by the same share a step as in the
    last windows; 0 where it is there, None where it does not fall.
    """
    window, recent = seen.limits.window, seen.memory.recent[ENTROPY]
    before, now = recent[:window], recent[-window:]
    if statistics.fmean(now) <= floor:
        return 0.0
    apart = len(recent) - window
    if apart <= 0 or min(statistics.fmean(before), statistics.fmean(now)) <= 0:
        return None
    pace = math.log(statistics.fmean(before) / statistics.fmean(now)) / apart
    return math.log(statistics.fmean(now) / floor) / pace if pace > 0 else None


def _most_certain(one: Judged) -> tuple[float, ...]:
    drawn = one.rollout.logprobs
    return (-statistics.fmean(drawn) if drawn else math.inf,)
