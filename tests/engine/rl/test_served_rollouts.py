"""A server's completions against the trainer's own model, where no update reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from engine.data.rows import Question
from engine.models.policy import Policy
from engine.rl.served_rollouts import FEW, ServedRollouts
from engine.sampling.base import Groups, OwnWeights, Rollout
from engine.sampling.contradiction import SamplerContradicted, SamplerMalformed
from engine.sampling.hf import HFSampler
from engine.sampling.rollouts import Rollouts

TASKS = [Question(f"q{i}", f"{i}+2=", "") for i in range(40)]
Lie = Callable[[Rollout], Rollout]


@dataclass
class Server:
    """The trainer's own model, and what it makes of each completion."""

    policy: Policy
    temp: float = 0.8
    lie: Lie = lambda one: one

    def __call__(self, tasks: Sequence[Question], k: int) -> Groups:
        sampler = HFSampler(self.policy, 0, "train", self.temp, 4, 64)
        return [[self.lie(one) for one in group] for group in sampler(tasks, k)]


def served(server: Server, *, trains: bool = False) -> ServedRollouts:
    return ServedRollouts(
        Rollouts(server, OwnWeights(), lambda _: ""),
        server.policy,
        temp=server.temp,
        max_new_tokens=4,
        limit=0.01,
        reads_all=trains,
        held=2 if trains else 0,
    )


def far(rollout: Rollout, nats: float = 1.0) -> Rollout:
    return replace(rollout, logprobs=tuple(value - nats for value in rollout.logprobs))


def moved(policy: Policy) -> None:
    """As by an update."""
    for parameter in policy.trainable().values():
        parameter.data.add_(0.02)
    policy.version += 1


@pytest.mark.requirement("EX-01")
@pytest.mark.parametrize("temp", [0.0, 0.2, 0.8])
def test_a_gate_is_held_against_the_trainers_model_on_a_few_of_its_rows(
    policy: Policy, temp: float
) -> None:
    """Greedy too; an honest one scores, one that is another model does not."""
    assert len(served(Server(policy, temp))(TASKS, 1)) == len(TASKS)

    with pytest.raises(SamplerContradicted, match=r"^held-out rows at step 0: sampler and trainer"):
        served(Server(policy, temp, far))(TASKS, 1)


@pytest.mark.requirement("EX-01")
def test_each_server_of_a_gate_is_read_again(policy: Policy) -> None:
    """The liar answered one row alone, which is none of the few that are spread over all."""
    lonely = 1
    assert lonely % -(-len(TASKS) // FEW)

    def lie(one: Rollout) -> Rollout:
        lies = one.question_id == f"q{lonely}"
        told = replace(one, server="http://liar/v1" if lies else "http://honest/v1")
        return far(told) if lies else told

    with pytest.raises(SamplerContradicted, match=r"what http://liar/v1 answered"):
        served(Server(policy, lie=lie))(TASKS, 1)


@pytest.mark.requirement("EX-01", "EX-15")
def test_what_was_drawn_ahead_is_held_against_the_weights_that_drew_it(policy: Policy) -> None:
    """The trainer has moved on: to the weights of now the rollouts would look like lies."""
    rollouts = served(Server(policy), trains=True)
    assert rollouts.bring() == 0
    groups = rollouts.draw(TASKS[:8], 4)
    now = [parameter.detach().clone() for parameter in policy.trainable().values()]
    moved(policy)

    assert rollouts.verify(groups) < 1e-5

    back = [parameter - 0.02 for parameter in policy.trainable().values()]
    assert all(a.allclose(b, atol=1e-6) for a, b in zip(back, now, strict=True))
    with pytest.raises(SamplerContradicted, match=r"^drawn ahead by the weights of step 0: "):
        rollouts.verify([[far(one, 0.2) for one in group] for group in groups])


@pytest.mark.requirement("EX-01", "EX-15")
def test_one_prompt_that_another_model_answers_is_found_ahead_too(policy: Policy) -> None:
    """One completion of each prompt is read again, so that no prompt is left out."""
    rollouts = served(Server(policy), trains=True)
    rollouts.bring()
    groups = [list(group) for group in rollouts.draw(TASKS[:8], 4)]
    groups[5] = [far(one) for one in groups[5]]

    with pytest.raises(SamplerContradicted, match=r"question 'q5'"):
        rollouts.verify(groups)


def test_weights_of_a_run_that_was_rolled_back_are_not_those_that_it_had(policy: Policy) -> None:
    """Their version is the same, and another step led to them."""
    rollouts = served(Server(policy), trains=True)
    rollouts.bring()
    moved(policy)
    policy.version = 0

    rollouts.bring()

    assert rollouts.verify(rollouts.draw(TASKS[:8], 4)) < 1e-5


def test_weights_that_are_gone_leave_room_for_what_a_step_moves(policy: Policy) -> None:
    """Of an attempt before this one: half a nat is allowed, another model is not."""
    groups = Server(policy)(TASKS[:8], 4)
    policy.version = 1
    rollouts = served(Server(policy), trains=True)

    rollouts.verify([[far(one, 0.5) for one in group] for group in groups])
    with pytest.raises(SamplerContradicted, match=r"\(for rollouts of older weights: 1 and more"):
        rollouts.verify([[far(one, 3.5) for one in group] for group in groups])


def test_a_completion_beyond_its_limit_is_refused_by_name(policy: Policy) -> None:
    """Before it is judged, wherever it is drawn."""

    def longer(one: Rollout) -> Rollout:
        ids, logprobs = (*one.completion_ids, 5, 6, 7, 8), (*one.logprobs, -1.0, -1.0, -1.0, -1.0)
        return replace(one, completion_ids=ids, logprobs=logprobs)

    with pytest.raises(SamplerMalformed, match=r"tokens where max_new_tokens is 4"):
        served(Server(policy, lie=longer), trains=True)(TASKS[:1], 2)


def test_copies_are_told_from_numbers_that_make_them_look_unlikely(policy: Policy) -> None:
    """The same answer to every sample, once with true numbers and once with false ones."""

    def copies(nats: float) -> ServedRollouts:
        firsts: dict[str, Rollout] = {}

        def lie(one: Rollout) -> Rollout:
            first = firsts.setdefault(one.question_id, one)
            return far(replace(first, sample=one.sample), nats)

        return served(Server(policy, lie=lie), trains=True)

    with pytest.raises(SamplerContradicted, match=r"answered all samples of 8 of 8 prompts alike"):
        copies(0.0)(TASKS[:8], 4)
    with pytest.raises(SamplerContradicted, match=r"sampler and trainer differ by 1 nats"):
        copies(1.0)(TASKS[:8], 4)
