"""Group-relative advantages (GRPO, arXiv 2402.03300, eq. 4.1.2)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

EPSILON = 1e-8
USED = 1e-6
"""A rollout whose |advantage| is smaller teaches nothing and is left out of the loss."""


def group_advantages(rewards_PG: Sequence[Sequence[float]]) -> list[list[float]]:
    """(reward − mean) / (population std + 1e-8) within each group; equal rewards give zeros.

    >>> group_advantages([[1.0, 0.0], [1.0, 1.0]])
    [[0.99999998, -0.99999998], [0.0, 0.0]]
    """
    return [_advantages(rewards_G) for rewards_G in rewards_PG]


def _advantages(rewards_G: Sequence[float]) -> list[float]:
    mean = statistics.fmean(rewards_G)
    std = statistics.pstdev(rewards_G, mean)
    if std < USED:
        return [0.0] * len(rewards_G)
    return [(reward - mean) / (std + EPSILON) for reward in rewards_G]
