"""A plateau: the last steps brought nothing, on the pool as on held-out rows, and took hours.

Said only where no other warning names what holds the run up, and where so many rollouts stand
behind the last steps that a rise would have been seen: what is noisy is not called flat.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import NamedTuple

from engine.rl.guards.warnings.seen import ONE_SIDED, SURE, Finding, Seen, worst

_NAMES_THE_CAUSE = frozenset({
    "ENTROPY_LOW", "TIES_HIGH", "KL_CREEP", "LENGTH_PAID", "FORM_PAID", "PEAKED",
})  # fmt: skip
_SHARE = 0.35
"""Of the steps so far."""
_NEVER_GAINED = 2.5
_OF_THE_GAIN = 0.15
"""A rise under this share of what the run gained before is none."""


class Slope(NamedTuple):
    """The rise of a straight line over some steps, and its standard error."""

    rise: float
    error: float


def look(seen: Seen) -> Finding | None:
    """Asked last: it depends on what else was said."""
    if _explained(seen):
        return None
    limits, state = seen.limits, seen.state
    size = max(limits.plateau_steps, math.ceil(_SHARE * state.step))
    start = state.step - size
    pool = {s: v for s, v in state.pool_scores.items() if math.isfinite(v)}
    late = {step: value for step, value in pool.items() if step > start}
    if start < 0 or len(late) < size / 2:
        return None
    gained = _gained({s: v for s, v in pool.items() if s <= start}, late, limits.window)
    if gained < limits.plateau_gain and state.step < _NEVER_GAINED * limits.plateau_steps:
        return None
    worth = max(limits.plateau_gain, _OF_THE_GAIN * gained)
    slope = line(late)
    most = slope.rise + ONE_SIDED * slope.error
    if slope.rise > slope.error or most > worth:
        return None
    heldout = _heldout(state.heldout_scores, start)
    if heldout is None or heldout >= limits.plateau_gain:
        return None
    seconds = sum(float(one["seconds"]) for one in state.history if one["step"] > start)
    return Finding(
        "PLATEAU",
        size,
        f"the last {size} steps brought nothing{_time(seconds)}: the pool moved by "
        f"{100 * slope.rise:+.1f} points (at most {100 * most:+.1f}, 95 %), and the best gate of "
        f"these steps lies {100 * heldout:+.1f} points from the best before; "
        "stop here (heldout_patience does it by itself), or go on with harder or other rows",
        {"steps": size, "seconds": seconds, "pool": slope.rise, "heldout": heldout},
        worst,
    )


def _explained(seen: Seen) -> bool:
    said = {str(alert.get("code")) for alert in seen.state.alerts}
    return "INVERSION" in said or bool(_NAMES_THE_CAUSE & seen.memory.said.keys())


def _gained(before: Mapping[int, float], late: Mapping[int, float], window: int) -> float:
    """What the pool rose from the first steps of the run to those of the late part; 0 where that
    may be chance.
    """
    first = [before[step] for step in sorted(before)[:window]]
    then = [late[step] for step in sorted(late)[:window]]
    if min(len(first), len(then)) < 3:
        return 0.0
    rise = statistics.fmean(then) - statistics.fmean(first)
    error = math.hypot(
        statistics.stdev(first) / math.sqrt(len(first)),
        statistics.stdev(then) / math.sqrt(len(then)),
    )
    return rise if rise > SURE * error else 0.0


def line(values: Mapping[int, float]) -> Slope:
    """Least squares over the steps; the error comes from how values scatter around the line."""
    steps = sorted(values)
    slope, level = statistics.linear_regression(steps, [values[step] for step in steps])
    rest = math.fsum((values[step] - level - slope * step) ** 2 for step in steps)
    middle = statistics.fmean(steps)
    spread = math.fsum((step - middle) ** 2 for step in steps)
    over = steps[-1] - steps[0]
    return Slope(slope * over, over * math.sqrt(rest / (len(steps) - 2) / spread))


def _heldout(scores: Mapping[int, float], start: int) -> float | None:
    """The best gate of the late part less the best before; None without gates on both sides."""
    before = [score for step, score in scores.items() if step <= start]
    late = [score for step, score in scores.items() if step > start]
    return max(late) - max(before) if before and len(late) >= 2 else None


def _time(seconds: float) -> str:
    if seconds < 60:
        return ""
    return f" ({seconds / 3600:.1f} h)" if seconds >= 3600 else f" ({seconds / 60:.0f} min)"
