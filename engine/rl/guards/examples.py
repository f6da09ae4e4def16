"""Completions that show what a guard or a warning says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from engine.rewards.adapter import Verdict
from engine.rl.buffer import JudgedGroup
from engine.sampling.base import Rollout


class Judged(NamedTuple):
    """A completion with its prompt and what it earned."""

    prompt: str
    rollout: Rollout
    verdict: Verdict


Order = Callable[[Judged], tuple[float, ...]]
"""Those that show it best have the smallest value."""


def judged_of(groups: Iterable[JudgedGroup]) -> list[Judged]:
    """Every completion of some groups."""
    return [
        Judged(group.task.prompt, rollout, verdict)
        for group in groups
        for rollout, verdict in zip(group.rollouts, group.verdicts, strict=True)
    ]


def examples(
    judged: Sequence[Judged], order: Order, count: int, shown: int
) -> list[dict[str, Any]]:
    """The first `count` by `order`, prompt and completion cut to `shown` characters."""
    return [
        {
            "prompt": one.prompt[:shown],
            "completion": one.rollout.text[:shown],
            "reward": one.verdict.reward,
            "reason": one.verdict.reason,
        }
        for one in sorted(judged, key=order)[:count]
    ]
