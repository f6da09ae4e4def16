"""The rewards of an `rl_run`, as its training and its gates ask them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from engine.contract.kinds.rl_run import RLRunConfig
from engine.data.rows import Question
from engine.rewards.adapter import RewardAdapter, ask_all, load_rewards, scheduled_reward
from engine.rewards.routed import RoutedReward


def build_reward(config: RLRunConfig, rows: Iterable[Question] = ()) -> RewardAdapter:
    """The config's rewards with its threshold, and what training makes of them step by step.

    `rows`: those that will be judged, some of which name their verifier.
    """
    limits, threshold = _limits(config), config.success_threshold
    strict = load_rewards(config.reward_parts, threshold, **limits)
    named = {question.verifier for question in rows if question.verifier}
    if named:
        by_name = {name: load_rewards([(name, 1.0)], threshold, **limits) for name in sorted(named)}
        strict = RoutedReward(
            partial(ask_all, strict, threshold=threshold),
            {n: partial(ask_all, one, threshold=threshold) for n, one in by_name.items()},
        )
    return scheduled_reward(strict, config.success_threshold, config.format, config.max_steps)


def build_judges(config: RLRunConfig, names: Iterable[str]) -> dict[str, RewardAdapter]:
    """Verifiers that read the same completions beside those rewards, by name."""
    threshold = config.success_threshold
    return {
        name: RewardAdapter(load_rewards([(name, 1.0)], threshold, **_limits(config)), threshold)
        for name in names
    }


def _limits(config: RLRunConfig) -> dict[str, Any]:
    return {"timeout_s": config.reward_timeout_s, "max_steps": config.max_steps}
