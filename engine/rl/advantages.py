"""Advantages: how much better than its group a rollout was.

Torch-free and pure. The reward of a truncated or overlong completion is settled here too, because
both choices must be made before the group's baseline is taken, or right behind it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from engine.contract.rl.objective import Advantages, ObjectiveConfig
from engine.sampling.base import Groups, Rollout

EPSILON = 1e-8
_LEAST_JUDGED = 2
"""Rewards that a baseline needs: one alone would be its own."""
USED = 1e-6
"""A rollout whose |advantage| is smaller has no policy term."""


def step_advantages(
    rewards_PG: Sequence[Sequence[float | None]],
    groups: Groups,
    objective: ObjectiveConfig,
    max_new_tokens: int,
) -> list[list[float]]:
    """Advantages of a step's rollouts, one list a group, as the objective asks for them.

    A reward of None says nothing of its completion: it is in no baseline, its advantage is 0. A
    truncated completion with `truncated: mask` counts in its group's baseline; its own advantage
    is 0 then, and with it its loss. Where groups without signal leave the batch, one whose rewards
    tie is such a group whatever the overlong penalty makes of its lengths.
    """
    buffer = objective.overlong_tokens(max_new_tokens)
    found = []
    for rewards_G, group in zip(rewards_PG, groups, strict=True):
        judged = [(i, reward) for i, reward in enumerate(rewards_G) if reward is not None]
        advantages_G = [0.0] * len(rewards_G)
        found.append(advantages_G)
        leaves = objective.zero_signal_used != "keep" and tied(rewards_G)
        if leaves or len(judged) < _LEAST_JUDGED:
            continue
        shaped_G = [reward for _, reward in judged]
        if buffer:
            lengths_G = [len(group[i].completion_ids) for i, _ in judged]
            shaped_G = [
                reward - objective.overlong_penalty * overlong(length, max_new_tokens, buffer)
                for reward, length in zip(shaped_G, lengths_G, strict=True)
            ]
        ranked_G = _BASELINES[objective.advantages_used](shaped_G)
        for (i, _), advantage in zip(judged, ranked_G, strict=True):
            advantages_G[i] = 0.0 if lost(group[i], objective) else advantage
    return found


def tied(rewards_G: Sequence[float | None]) -> bool:
    """Whether a group's rewards rank nothing; DAPO's dynamic sampling (arXiv 2503.14476, eq. 11).

    The paper asks for right and wrong completions: for correctness, before length costs any of it.
    Fewer than two that were judged rank nothing either.

    >>> tied([1.0, 1.0]), tied([1.0, None])
    (True, True)
    """
    judged = [reward for reward in rewards_G if reward is not None]
    return len(judged) < _LEAST_JUDGED or max(judged) - min(judged) < USED


def lost(rollout: Rollout, objective: ObjectiveConfig) -> bool:
    """Whether the rollout adds no loss because it was cut off."""
    return objective.truncated == "mask" and rollout.truncated


def has_signal(advantages_G: Sequence[float]) -> bool:
    """Whether a group teaches anything.

    >>> has_signal([0.0, 0.0])
    False
    """
    return any(abs(advantage) >= USED for advantage in advantages_G)


def overlong(length: int, limit: int, buffer: int) -> float:
    """Share of the overlong penalty: 0 up to limit − buffer, then linearly to 1 at the limit.

    DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13), negated.

    >>> overlong(18, limit=20, buffer=4)
    0.5
    """
    return min(1.0, max(0.0, (length - (limit - buffer)) / buffer))


def group_advantages(rewards_PG: Sequence[Sequence[float]]) -> list[list[float]]:
    """(reward − mean) / (population std + 1e-8) within each group; equal rewards give zeros.

    GRPO (arXiv 2402.03300, section 4.1.2).

    >>> group_advantages([[1.0, 0.0], [1.0, 1.0]])
    [[0.99999998, -0.99999998], [0.0, 0.0]]
    """
    return [group_std(rewards_G) for rewards_G in rewards_PG]


def group_std(rewards_G: Sequence[float]) -> list[float]:
    """(reward − mean) / (population std + 1e-8); zeros where the deviation is under 1e-6."""
    mean = statistics.fmean(rewards_G)
    std = statistics.pstdev(rewards_G, mean)
    if std < USED:
        return [0.0] * len(rewards_G)
    return [(reward - mean) / (std + EPSILON) for reward in rewards_G]


def group_mean(rewards_G: Sequence[float]) -> list[float]:
    """Reward − mean of the group: Dr. GRPO (arXiv 2503.20783).

    >>> group_mean([1.0, 0.0])
    [0.5, -0.5]
    """
    if tied(rewards_G):
        return [0.0] * len(rewards_G)
    mean = statistics.fmean(rewards_G)
    return [reward - mean for reward in rewards_G]


def leave_one_out(rewards_G: Sequence[float]) -> list[float]:
    """Reward − mean of the group's others: RLOO (arXiv 2402.14740, section 3.1).

    >>> leave_one_out([1.0, 0.0, 0.5])
    [0.75, -0.75, 0.0]
    """
    scale = len(rewards_G) / (len(rewards_G) - 1)
    return [scale * advantage for advantage in group_mean(rewards_G)]


_BASELINES: Mapping[Advantages, Callable[[Sequence[float]], list[float]]] = MappingProxyType(
    {"group_std": group_std, "group_mean": group_mean, "leave_one_out": leave_one_out}
)
