"""Is there anything to learn, and anything to learn from? Asked once, of the baseline."""

from __future__ import annotations

from dataclasses import dataclass

from engine.contract.kinds.rl_run import RLRunConfig
from engine.evaluate.unread import Unread
from engine.run.stop import Declined

FORCE = "or set force_headroom to train all the same"
_MOSTLY = 0.5
"""A policy that is cut off on so many rows may know more than it could say."""


@dataclass(frozen=True)
class Baseline:
    """What the gate before the first step found."""

    score: float
    truncated: float = 0.0
    """Share of the completions that were cut off at `max_new_tokens`."""
    failure: str | None = None
    """That the verifier broke on many rows, and how."""
    unread: Unread | None = None
    """What of them the verifier could not read."""


def check_headroom(baseline: Baseline, config: RLRunConfig) -> None:
    """Raises Declined (NO_HEADROOM, NO_SIGNAL) for a baseline at or beyond the limits.

    Where the verifier broke, found no answer, or the completions were cut off, that may be why so
    few were solved, and is to be mended first: VERIFIER_FAILED, or NO_SIGNAL that says so.
    """
    score, guard = baseline.score, config.guard
    if score >= guard.headroom_ceiling:
        raise Declined(
            "NO_HEADROOM",
            f"the policy already solves {score:.1%} of the held-out rows before its first step "
            f"(guard.headroom_ceiling={guard.headroom_ceiling:g}); choose harder rows, {FORCE}",
        )
    if score > guard.headroom_floor:
        return
    few = f"the policy solves only {score:.1%} of the held-out rows before its first step"
    if baseline.failure is not None:
        raise Declined(
            "VERIFIER_FAILED",
            f"{few}, and {baseline.failure}; correct the answers of the rows, or choose the "
            f"verifier that reads them, {FORCE}",
        )
    why = f"{few} (guard.headroom_floor={guard.headroom_floor:g}), so that few groups would rank"
    easier = "choose easier rows, a warm-up or a longer one"
    if baseline.unread is not None:
        why, easier = _read_first(baseline.unread, why, easier)
    if baseline.truncated >= _MOSTLY:
        why += (
            f", and {baseline.truncated:.1%} of its completions were cut off at "
            f"max_new_tokens={config.max_new_tokens}"
        )
        easier = f"raise max_new_tokens first; or {easier}"
    raise Declined("NO_SIGNAL", f"{why}; {easier}, {FORCE}")


def _read_first(found: Unread, why: str, easier: str) -> tuple[str, str]:
    """What is to be mended before easier rows are looked for."""
    better = found.better
    if found.share >= _MOSTLY:
        why += f", and {found.text()}"
        easier = (
            "show the format that it reads (prompting.question_format, format.shots, "
            "format.pretrain), or choose the verifier that reads what the policy writes"
        )
    if better is not None:
        why += f"; verifier: {better.name} reads {better.read} of {better.of} of them, "
        why += f"{better.right} right"
        easier = f"set verifier: {better.name} where that is the format you want, or {easier}"
    return why, easier
