"""What a `requant` proves before its first score: merged, the model says what it said before."""

from __future__ import annotations

from collections.abc import Sequence

from engine.run.proof import Check, Measured

_MERGED_APART = 1e-3
"""Nats: far above what fp32 rounds, far below what a wrong merge does."""


def checks(merge_gap: float) -> Sequence[Check]:
    """`merge_gap`: as it was measured where both stood in memory."""
    return [
        Check(
            "merge",
            "log-probabilities before and after the adapter was merged differ, in nats at the "
            "worst token",
            "what would be quantized is not what was trained: report the architecture",
            lambda: Measured(merge_gap, _MERGED_APART),
        )
    ]
