"""Steps growing slower, and which part of them does."""

from __future__ import annotations

from engine.rewards.judgement import Reason
from engine.rl.guards.examples import Judged
from engine.rl.guards.warnings.seen import (
    LENGTH,
    PARTS_S,
    STEP_S,
    TIMEOUTS,
    Finding,
    Seen,
    longest,
)


def look(seen: Seen) -> Finding | None:
    """A step takes longer than at first, and the steps that are left make that worth a word."""
    step, limits = seen.change(STEP_S), seen.limits
    if step is None or not step.sure or step.now_median < limits.slower * step.first_median:
        return None
    more = step.now_median - step.first_median
    if more * seen.left < limits.slower_cost_s or more <= 0:
        return None
    parts = {part: seen.change(name) for part, name in PARTS_S.items()}
    grown = {part: c.now_median - c.first_median for part, c in parts.items() if c is not None}
    part = max(grown, key=lambda name: grown[name], default="")
    if not part or grown[part] < more / 2:
        part = ""
    return Finding(
        "SLOWER",
        step.now_median / max(step.first_median, 1e-9),
        f"a step takes {step.now_median:.1f} s and took {step.first_median:.1f} s at first"
        f"{_of(seen, part, grown)}; the {seen.left} steps that are left take "
        f"{_hours(more * seen.left)} more by that; {_REMEDIES[part]}",
        {"first_s": step.first_median, "now_s": step.now_median, "left_s": more * seen.left},
        _timed_out if part == "verifying" else longest,
    )


_REMEDIES = {
    "sampling": "completions that grow take longer: see max_new_tokens, or charge for length "
    "(objective.overlong_buffer)",
    "verifying": "look at what the verifier hangs on, or lower reward_timeout_s",
    "training": "completions that grow take longer: see max_new_tokens, optim.batching: packed",
    "": "look at what else runs on the machine",
}


def _of(seen: Seen, part: str, grown: dict[str, float]) -> str:
    if not part:
        return ", in no one part"
    said = f", {grown[part]:.1f} s of it in {part}"
    timeouts, length = seen.change(TIMEOUTS), seen.change(LENGTH)
    if part == "verifying" and timeouts is not None and timeouts.now > 0:
        said += f" ({timeouts.now:.1%} of the completions run out of its time)"
    elif part in {"sampling", "training"} and length is not None and length.sure:
        said += f" (completions: {length.first:.0f} tokens at first, {length.now:.0f} now)"
    return said


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"


def _timed_out(one: Judged) -> tuple[float, ...]:
    return (float(one.verdict.reason is not Reason.TIMEOUT), *longest(one))
