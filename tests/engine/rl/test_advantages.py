"""Baselines, the overlong penalty and what a truncated completion keeps, against tables by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from engine.contract.rl.objective import ObjectiveConfig
from engine.rl.advantages import (
    group_advantages,
    group_mean,
    has_signal,
    leave_one_out,
    overlong,
    step_advantages,
)
from engine.sampling.base import Rollout


def group(*lengths: int, truncated: Sequence[int] = ()) -> list[Rollout]:
    return [
        Rollout("q", i, (1,), (2,) * length, (), "", i in truncated, 0)
        for i, length in enumerate(lengths)
    ]


def test_equal_rewards_in_a_group_give_zero_advantages() -> None:
    """No ranking inside the group means no learning signal, whatever the baseline."""
    assert group_advantages([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]) == [[0.0] * 3, [0.0] * 3]
    assert group_mean([0.1, 0.1, 0.1]) == [0.0] * 3
    assert leave_one_out([0.1, 0.1, 0.1]) == [0.0] * 3


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1.0, 0.0], [1.0, -1.0]),
        ([1.0, 0.0, 0.0, 0.0], [math.sqrt(3), *[-1 / math.sqrt(3)] * 3]),
        ([2.0, 4.0, 6.0], [-math.sqrt(1.5), 0.0, math.sqrt(1.5)]),
    ],
)
def test_advantages_are_in_units_of_the_groups_population_deviation(
    rewards: list[float], expected: list[float]
) -> None:
    """Divided by n, not by n − 1; each group for itself."""
    assert group_advantages([rewards])[0] == pytest.approx(expected, abs=1e-6)


def test_a_tied_group_beside_a_ranked_one_stays_at_zero() -> None:
    """Groups do not leak into each other."""
    tied, ranked = group_advantages([[0.3, 0.3], [0.0, 1.0]])

    assert tied == [0.0, 0.0]
    assert ranked == pytest.approx([-1.0, 1.0], abs=1e-6)


def test_the_groups_mean_alone_keeps_the_scale_of_the_rewards() -> None:
    """Dr. GRPO: (2, 4, 6) − 4, not divided by the deviation."""
    assert group_mean([2.0, 4.0, 6.0]) == [-2.0, 0.0, 2.0]


def test_leave_one_out_compares_a_rollout_with_the_others_alone() -> None:
    """2 − (4+6)/2, 4 − (2+6)/2, 6 − (2+4)/2."""
    assert leave_one_out([2.0, 4.0, 6.0]) == [-3.0, 0.0, 3.0]


@pytest.mark.parametrize(
    ("length", "share"), [(1, 0.0), (16, 0.0), (17, 0.25), (18, 0.5), (20, 1.0)]
)
def test_the_overlong_penalty_rises_linearly_to_the_limit(length: int, share: float) -> None:
    """Nothing up to limit − buffer = 16, the whole penalty at 20."""
    assert overlong(length, limit=20, buffer=4) == share


def test_a_long_right_answer_is_worth_less_than_a_short_one_under_dapo() -> None:
    """Shaping comes before the baseline: rewards (1, 1, 0) become (1, 1 − 0.5, 0)."""
    objective = ObjectiveConfig(loss="dapo", overlong_buffer=4, advantages="group_mean")

    found = step_advantages([[1.0, 1.0, 0.0]], [group(3, 18, 3)], objective, 20)

    assert found == [[0.5, 0.0, -0.5]]


@pytest.mark.requirement("EX-17")
@pytest.mark.parametrize("rewards", [[1.0, 1.0], [0.0, 0.0], [0.3, 0.3]])
def test_length_alone_is_no_signal_where_tied_groups_leave_the_batch(rewards: list[float]) -> None:
    """DAPO, eq. 11: some right and some wrong, asked of the reward before the overlong penalty."""
    rollouts = [group(3, 18)]
    filters = [ObjectiveConfig(loss="dapo"), ObjectiveConfig(loss="dapo", zero_signal="filter")]
    keeps = ObjectiveConfig(loss="dapo", zero_signal="keep")

    for objective in filters:
        assert step_advantages([rewards], rollouts, objective, 20) == [[0.0, 0.0]]
    assert has_signal(step_advantages([rewards], rollouts, keeps, 20)[0])


def test_dapos_buffer_is_a_fifth_of_the_limit_unless_told_otherwise() -> None:
    """4,096 of 20,480 in the paper; the other losses have none."""
    assert ObjectiveConfig(loss="dapo").overlong_tokens(20) == 4
    assert ObjectiveConfig(loss="dapo", overlong_buffer=0).overlong_tokens(20) == 0
    assert ObjectiveConfig(loss="grpo").overlong_tokens(20) == 0


def test_a_truncated_completion_keeps_its_place_in_the_baseline_and_may_lose_its_loss() -> None:
    """The others' advantages are the same either way; its own becomes 0."""
    rewards, rollouts = [[1.0, 0.0, 0.5]], [group(2, 9, 3, truncated=[1])]

    trained = step_advantages(rewards, rollouts, ObjectiveConfig(loss="dr_grpo"), 9)
    masked = step_advantages(
        rewards, rollouts, ObjectiveConfig(loss="dr_grpo", truncated="mask"), 9
    )

    assert trained == [[0.5, -0.5, 0.0]]
    assert masked == [[0.5, 0.0, 0.0]]


@pytest.mark.requirement("EX-17")
def test_a_group_has_signal_when_any_of_its_rollouts_is_used() -> None:
    """The predicate of dynamic sampling: |A| ≥ 1e-6 somewhere."""
    assert not has_signal([0.0, 1e-7])
    assert has_signal([0.0, -1e-6])
