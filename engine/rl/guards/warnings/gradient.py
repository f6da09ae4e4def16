"""Single large gradients: clipped, they still stay in AdamW's moments for many steps."""

from __future__ import annotations

import statistics

from engine.rl.guards.warnings.seen import GRAD_NORM, Finding, Seen, WatchMemory, worst


def is_spike(memory: WatchMemory, factor: float) -> bool:
    """Whether the newest norm is one, beside the steps before it."""
    *before, newest = memory.recent.get(GRAD_NORM, [0.0])
    moved = [norm for norm in before if norm > 0]
    return len(moved) >= 5 and newest > factor * statistics.median(moved)


def look(seen: Seen) -> Finding | None:
    """Several of them, the newest in this step. Asked after every step."""
    memory, limits = seen.memory, seen.limits
    if memory.spikes < limits.grad_spikes or not is_spike(memory, limits.grad_spike):
        return None
    norms = memory.recent[GRAD_NORM]
    value, usual = norms[-1], statistics.median(norms)
    return Finding(
        "GRAD_SPIKES",
        memory.spikes,
        f"the gradient's norm is {value:.3g} and usually {usual:.3g}, {memory.spikes} such "
        "steps so far; look at this step's completions and rewards, and lower lr or grad_clip",
        {"value": value, "usual": usual, "spikes": memory.spikes},
        worst,
    )
