"""What every backend promises of its draws and of the weights behind them.

The policy's own sampler; a vLLM server: the stand-in, by `make test-vllm` the real one too; two
stand-ins as a fleet; ms-swift's routes, as far as they go: they tell no log-probabilities, and a
seed belongs to a call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.models.policy import Policy
from engine.run.stop import Aborted, rl_hooks
from tests.engine.chat_model import END, NOT_ASKED_FOR, STOP
from tests.engine.sampling.conformance.backends import (
    SAME,
    TASKS,
    TEMP,
    Backend,
    flat,
    gap,
    move,
)


@pytest.mark.requirement("RL-09")
def test_the_trainer_reads_the_samplers_logprobs_off_the_same_tokens(
    backend: Backend, policy: Policy
) -> None:
    """At the sampling temperature, so that an importance ratio between the two begins at 1."""
    for temp in (TEMP, 1.0, 0.2):
        rollouts = flat(backend(temp=temp)(TASKS, 4))

        assert len(rollouts) == 24
        assert gap(policy, rollouts, temp) < SAME
        assert [r.question_id for r in rollouts[::4]] == [task.id for task in TASKS]
        assert [r.sample for r in rollouts[:4]] == [0, 1, 2, 3]


@pytest.mark.requirement("RL-09")
def test_a_completion_ends_at_the_runs_own_end_tokens(any_backend: Backend, policy: Policy) -> None:
    """Both of the generation config; whichever was drawn stands last, and not in the text."""
    tokenizer: Any = policy.tokenizer
    ends = set(tokenizer.convert_tokens_to_ids([END, STOP]))

    rollouts = flat(any_backend(temp=2.0)(TASKS, 32))

    assert {r.completion_ids[-1] for r in rollouts if not r.truncated} == ends
    for r in rollouts:
        assert ends.isdisjoint(r.completion_ids[:-1])
        assert r.truncated == (r.completion_ids[-1] not in ends)
        assert not r.truncated or len(r.completion_ids) == 12
        assert END not in r.text


@pytest.mark.requirement("EX-03", "RL-09")
def test_a_seed_draws_the_same_alone_and_among_others(backend: Backend, policy: Policy) -> None:
    """It depends on who the draw is for; the samples of a question are not copies of each other."""
    whole = backend()(TASKS, 4)
    [alone] = backend()(TASKS[2:3], 4)
    other = backend(seed=5)(TASKS, 4)

    assert [r.completion_ids for r in alone] == [r.completion_ids for r in whole[2]]
    assert len({r.completion_ids for r in flat(whole)}) > 20
    assert [r.completion_ids for r in flat(other)] != [r.completion_ids for r in flat(whole)]


def test_a_later_draw_of_a_question_is_another_and_a_gates_is_not(
    any_backend: Backend, policy: Policy
) -> None:
    """The curriculum's count goes into the seed; a pinned sampler leaves it out."""
    later = [replace(task, draw=7) for task in TASKS]

    for pinned in (False, True):
        draw = any_backend(pin_version=pinned)
        first, second = flat(draw(TASKS, 2)), flat(draw(later, 2))
        same = [r.completion_ids for r in first] == [r.completion_ids for r in second]
        assert same == pinned


@pytest.mark.requirement("EX-01")
def test_nothing_of_the_generation_config_reaches_a_rollout(
    backend: Backend, policy: Policy
) -> None:
    """It says temperature 0.1, top-k 5 and a penalty; the draws are those of temperature 0.9."""
    configured = policy.model.generation_config.to_dict()
    assert {name: configured[name] for name in NOT_ASKED_FOR} == NOT_ASKED_FOR

    first = [r.completion_ids[0] for r in flat(backend(max_new_tokens=1)(TASKS[:1], 400))]

    with torch.no_grad():
        ids = torch.tensor([policy.encode(TASKS[0].prompt)])
        expected = torch.softmax(policy.model(ids).logits[0, -1] / TEMP, -1)
    top_five = expected.topk(5).values.sum().item()
    inside = sum(token in expected.topk(5).indices.tolist() for token in first) / len(first)
    assert inside == pytest.approx(top_five, abs=0.1)


def test_greedy_takes_the_likeliest_token(any_backend: Backend, policy: Policy) -> None:
    """Temperature 0, as a held-out gate may ask."""
    rollouts = flat(any_backend(temp=0.0, pin_version=True)(TASKS, 1))

    for r in rollouts:
        with torch.no_grad():
            ids = torch.tensor([[*r.prompt_ids, *r.completion_ids]])
            logits = policy.model(ids).logits[0]
        begin = len(r.prompt_ids) - 1
        assert logits[begin:-1].argmax(-1).tolist() == list(r.completion_ids)


def test_a_stop_reaches_a_decode_and_the_next_ones_are_answered(
    any_backend: Backend, policy: Policy
) -> None:
    """The requests are given up; the next ones are answered."""
    asked = 0

    def should_abort() -> bool:
        nonlocal asked
        asked += 1
        return asked > 1

    with rl_hooks(should_abort=should_abort), pytest.raises(Aborted):
        any_backend(max_new_tokens=40)(TASKS, 16)

    assert len(flat(any_backend()(TASKS, 1))) == 6


@pytest.mark.requirement("RL-09")
def test_what_is_drawn_after_a_step_is_drawn_by_the_new_weights(
    backend: Backend, policy: Policy
) -> None:
    """At once, step after step, and what was drawn before was not drawn by these."""
    draw = backend()
    for number in range(3):
        before = flat(draw(TASKS, 4))
        move(policy, 0.05, seed=30 + number)

        rollouts = flat(draw(TASKS, 4))

        assert gap(policy, rollouts, TEMP) < SAME
        assert gap(policy, before, TEMP) > 0.01


def test_weights_that_are_in_use_are_not_brought_again(any_backend: Backend) -> None:
    """The draws stay the same, however often they are brought."""
    draw = any_backend(pin_version=True)
    first = flat(draw(TASKS, 2))

    for _ in range(3):
        draw.sync.bring()

    assert [r.completion_ids for r in flat(draw(TASKS, 2))] == [r.completion_ids for r in first]


def test_no_questions_are_no_rollouts(any_backend: Backend) -> None:
    """A step whose groups all wait in the buffer samples nothing."""
    assert list(any_backend()([], 4)) == []
