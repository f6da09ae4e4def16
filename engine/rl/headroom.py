"""Is there anything to learn, and anything to learn from? Asked once, of the baseline."""

from __future__ import annotations

from engine.contract.rl.guard import GuardConfig
from engine.hooks import Declined

FORCE = "or set force_headroom to train all the same"


def check_headroom(baseline: float, config: GuardConfig) -> None:
    """Raises Declined (NO_HEADROOM, NO_SIGNAL) for a baseline at or beyond the limits."""
    if baseline >= config.headroom_ceiling:
        raise Declined(
            "NO_HEADROOM",
            f"the untrained policy already solves {baseline:.1%} of the held-out rows "
            f"(guard.headroom_ceiling={config.headroom_ceiling:g}); choose harder rows, {FORCE}",
        )
    if baseline <= config.headroom_floor:
        raise Declined(
            "NO_SIGNAL",
            f"the untrained policy solves only {baseline:.1%} of the held-out rows "
            f"(guard.headroom_floor={config.headroom_floor:g}), so that few groups would rank; "
            f"choose easier rows, add a warm-up, {FORCE}",
        )
