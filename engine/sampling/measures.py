"""What rollouts look like by themselves: length, ends, duplicates, and how they were drawn.

Torch-free. Knows no reward.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping

from engine.sampling.base import Groups, Rollout


def measures(groups: Groups) -> dict[str, float]:
    """Series `rollout/…` of a step's completions.

    `duplicates` is the share of the completions that repeat a sibling. `duplicates_excess` is what
    chance does not explain of it: equal pairs within the groups less the pairs expected of
    independent draws, which for each completion are the others with its own probability.
    """
    rollouts = [rollout for group in groups for rollout in group]
    distinct = sum(len({r.completion_ids for r in group}) for group in groups)
    tokens = sum(len(r.completion_ids) for r in rollouts)
    return {
        "rollout/length_mean": tokens / len(rollouts),
        "rollout/truncated": statistics.fmean(float(r.truncated) for r in rollouts),
        "rollout/empty": statistics.fmean(
            float(not r.text[len(r.begun) :].strip()) for r in rollouts
        ),
        "rollout/duplicates": 1 - distinct / len(rollouts),
        "rollout/duplicates_excess": duplicates_excess(groups),
        "rollout/draw_shift": sum(r.draw_shift for r in rollouts) / tokens,
    }


def duplicates_excess(groups: Groups) -> float:
    """Share of equal pairs within the groups, less the share that chance explains.

    The chance that two independent draws agree is the mean probability of a draw, so each
    completion's own probability estimates it without bias.
    """
    pairs = equal = 0
    expected = 0.0
    for group in groups:
        size = len(group)
        pairs += size * (size - 1) // 2
        copies = Counter(r.completion_ids for r in group).values()
        equal += sum(count * (count - 1) // 2 for count in copies)
        expected += (size - 1) / 2 * sum(_probability(r) for r in group)
    return (equal - expected) / pairs if pairs else 0.0


def _probability(rollout: Rollout) -> float:
    """Of drawing this completion, filters and penalties included."""
    return math.exp(min(0.0, math.fsum(rollout.logprobs) + rollout.draw_shift))


def duplicates_warning(step: int, values: Mapping[str, float], alarm: float) -> str | None:
    """What to say when the draws of a group are not independent; None when they are."""
    excess = values.get("rollout/duplicates_excess", 0.0)
    if excess <= alarm:
        return None
    return (
        f"step {step}: {excess:.0%} of the pairs within the groups are equal beyond what chance "
        f"explains (sampling.duplicates_alarm={alarm:g}): the sampler repeats its random numbers"
    )
