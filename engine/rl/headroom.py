"""Is there anything to learn, and anything to learn from? Asked once, of the baseline."""

from __future__ import annotations

from engine.contract.rl.guard import GuardConfig
from engine.hooks import Declined

FORCE = "or set force_headroom to train all the same"


def check_headroom(baseline: float, config: GuardConfig, failure: str | None = None) -> None:
    """Raises Declined (NO_HEADROOM, NO_SIGNAL) for a baseline at or beyond the limits.

    `failure`: that the verifier broke on many rows, and how; it may be why so few were solved, and
    is to be mended first: VERIFIER_FAILED.
    """
    if baseline >= config.headroom_ceiling:
        raise Declined(
            "NO_HEADROOM",
            f"the policy already solves {baseline:.1%} of the held-out rows before its first step "
            f"(guard.headroom_ceiling={config.headroom_ceiling:g}); choose harder rows, {FORCE}",
        )
    if baseline <= config.headroom_floor and failure is not None:
        raise Declined(
            "VERIFIER_FAILED",
            f"the policy solves only {baseline:.1%} of the held-out rows before its first step, "
            f"and {failure}; correct the answers of the rows, or choose the verifier that reads "
            f"them, {FORCE}",
        )
    if baseline <= config.headroom_floor:
        raise Declined(
            "NO_SIGNAL",
            f"the policy solves only {baseline:.1%} of the held-out rows before its first step "
            f"(guard.headroom_floor={config.headroom_floor:g}), so that few groups would rank; "
            f"choose easier rows, a warm-up or a longer one, {FORCE}",
        )
