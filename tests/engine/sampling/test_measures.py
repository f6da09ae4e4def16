"""What rollouts look like by themselves, and the alarm for draws that are not independent."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from engine.contract.rl.sampling import SamplingConfig
from engine.data.rows import Question
from engine.models.policy import Policy
from engine.sampling.base import Rollout
from engine.sampling.hf import HFSampler
from engine.sampling.measures import duplicates_excess, duplicates_warning, measures

ALARM = SamplingConfig().duplicates_alarm


def rollout(*ids: int, p: float = 0.5, **changes: Any) -> Rollout:
    """A completion whose whole probability is `p`."""
    logprobs = (math.log(p), *[0.0] * (len(ids) - 1))
    return replace(Rollout("q", 0, (1,), ids, logprobs, "text", False, 0), **changes)


def test_the_series_of_a_step() -> None:
    """Two groups of two, counted by hand."""
    groups = [
        [rollout(5, 9), rollout(5, 9, truncated=True)],
        [rollout(9, text=" \n"), rollout(6, 7, 9, draw_shift=0.8)],
    ]

    found = measures(groups)

    assert found == pytest.approx(
        {
            "rollout/length_mean": 2.0,
            "rollout/truncated": 0.25,
            "rollout/empty": 0.25,
            "rollout/duplicates": 0.25,
            "rollout/duplicates_excess": found["rollout/duplicates_excess"],
            "rollout/draw_shift": 0.1,
        }
    )


@pytest.mark.requirement("EX-03")
@pytest.mark.parametrize(("probability", "excess"), [(1.0, 0.0), (0.5, 0.5), (0.001, 0.999)])
def test_equal_completions_are_excess_as_far_as_chance_does_not_explain_them(
    probability: float, excess: float
) -> None:
    """Copies of a certain answer are what one expects; those of a rare one, a broken seed."""
    group = [rollout(5, 9, p=probability)] * 8

    assert duplicates_excess([group]) == pytest.approx(excess)


@pytest.mark.requirement("EX-03")
def test_independent_draws_have_no_excess_and_equal_seeds_set_off_the_alarm(policy: Policy) -> None:
    """The real sampler against one that gives every sample the same random numbers."""
    sampler = HFSampler(policy, seed=1, purpose="train", temp=1.0, max_new_tokens=3, batch_size=512)
    tasks = [Question(f"q{i}", f"{i}+", "7", draw=0) for i in range(16)]

    honest = measures(sampler(tasks, 16))
    broken = measures([[g[0] for g in [sampler([task], 1)[0]] * 16] for task in tasks])

    assert abs(honest["rollout/duplicates_excess"]) < 0.05
    assert duplicates_warning(1, honest, ALARM) is None
    assert broken["rollout/duplicates"] == pytest.approx(15 / 16)
    warning = duplicates_warning(1, broken, ALARM)
    assert warning is not None
    assert warning.startswith("step 1: 9")
    assert "the sampler repeats its random numbers" in warning


@pytest.mark.requirement("EX-03")
def test_a_prompt_drawn_again_at_the_same_weights_gets_other_completions(policy: Policy) -> None:
    """An epoch later, after steps that taught nothing: the draw's number goes on."""
    sampler = HFSampler(policy, seed=1, purpose="train", temp=1.0, max_new_tokens=6, batch_size=64)
    drawn = [Question("q", "1+2=", "7", draw=draw) for draw in (0, 0, 1)]

    first, again, later = ([r.completion_ids for r in sampler([row], 8)[0]] for row in drawn)

    assert first == again
    assert first != later
