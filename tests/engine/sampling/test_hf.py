"""The embedded sampler on a real tiny model."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from engine.data.rows import Question
from engine.models.policy import Policy, eos_ids
from engine.rewards.adapter import Reason, RewardAdapter, load_verifier
from engine.rl.scoring import Batch, score
from engine.run.stop import Aborted, rl_hooks
from engine.sampling.base import Rollout
from engine.sampling.hf import HFSampler
from engine.sampling.seeds import key, uniforms

TASKS = [Question(f"q{i}", prompt, "7") for i, prompt in enumerate(["1=", "12+34=", "7+", "99+"])]


def sampler_of(policy: Policy, **settings: Any) -> HFSampler:
    defaults: dict[str, Any] = {
        "seed": 1,
        "purpose": "train",
        "temp": 0.8,
        "max_new_tokens": 8,
        "batch_size": 64,
    }
    return HFSampler(policy, **(defaults | settings))


def without_floats(rollouts: Any) -> list[Rollout]:
    return [replace(r, logprobs=()) for group in rollouts for r in group]


def test_groups_come_in_the_tasks_order_with_k_samples_each(policy: Policy) -> None:
    """Sorting by length inside the sampler is nobody's business outside."""
    groups = sampler_of(policy)(TASKS, 3)

    assert [[r.question_id for r in g] for g in groups] == [[t.id] * 3 for t in TASKS]
    assert [[r.sample for r in g] for g in groups] == [[0, 1, 2]] * 4
    assert [g[0].prompt_ids for g in groups] == [policy.encode(t.prompt) for t in TASKS]


@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_a_completion_does_not_depend_on_the_batch_it_is_decoded_in(
    policy: Policy, batch_size: int
) -> None:
    """Alone, padded beside longer prompts, or cut off from its siblings: the same tokens."""
    whole = sampler_of(policy)(TASKS, 4)

    groups = sampler_of(policy, batch_size=batch_size)(TASKS, 4)
    alone = sampler_of(policy, batch_size=batch_size)(TASKS[2:3], 4)

    assert without_floats(groups) == without_floats(whole)
    assert without_floats(alone) == without_floats([whole[2]])


@pytest.mark.parametrize("temp", [0.8, 1.3, 0.0])
def test_logprobs_are_the_trainers_at_the_same_temperature(policy: Policy, temp: float) -> None:
    """One convention: what the sampler wrote down is what the trainer reads off the weights."""
    rollouts = [r for g in sampler_of(policy, temp=temp)(TASKS, 4) for r in g]

    with torch.no_grad():
        batch = Batch.of(rollouts, policy.device)
        scores = score(policy.model, batch, temp)

    for row, rollout in enumerate(rollouts):
        theirs = scores.logprobs_BT[row][batch.mask_BT[row] > 0].tolist()
        assert rollout.logprobs == pytest.approx(theirs, abs=1e-5)


@pytest.mark.requirement("EX-02")
def test_a_completion_ends_with_its_eos_or_is_truncated(policy: Policy) -> None:
    """The end token is part of the completion, nothing stands behind it, and text leaves it out."""
    rollouts = [r for g in sampler_of(policy, temp=1.0)(TASKS, 64) for r in g]

    assert {r.truncated for r in rollouts} == {True, False}
    for r in rollouts:
        ends = [i for i, token in enumerate(r.completion_ids) if token in policy.eos_ids]
        assert ends == ([] if r.truncated else [len(r.completion_ids) - 1])
        assert len(r.completion_ids) == 8 or not r.truncated
        assert len(r.text) == len(r.completion_ids) - (not r.truncated)


def test_every_eos_of_the_generation_config_is_terminal(policy: Policy) -> None:
    """Chat models end their turn with another token than their text."""
    policy.model.generation_config = GenerationConfig(eos_token_id=[3, 12])  # type: ignore[no-untyped-call]
    policy.eos_ids = eos_ids(policy.model, policy.tokenizer)

    rollouts = [r for g in sampler_of(policy)(TASKS, 32) for r in g]

    assert policy.eos_ids == {3, 12}
    assert {r.completion_ids[-1] for r in rollouts if not r.truncated} == {3, 12}


def test_nothing_but_temperature_shapes_the_distribution(policy: Policy) -> None:
    """A top_k of 1 in the model's generation config does not reach the rollouts."""
    policy.model.generation_config.top_k = 1
    policy.model.generation_config.do_sample = False

    [group] = sampler_of(policy, max_new_tokens=1)(TASKS[:1], 400)

    counts = torch.bincount(torch.tensor([r.completion_ids[0] for r in group]), minlength=13)
    with torch.no_grad():
        logits = policy.model(torch.tensor([group[0].prompt_ids])).logits[0, -1]
    expected = torch.softmax(logits / 0.8, -1) * 400
    chi2 = ((counts - expected) ** 2 / expected).sum().item()
    assert chi2 < 32.9  # 99.9 % quantile at 12 degrees of freedom


def test_greedy_is_the_argmax_at_every_step(policy: Policy) -> None:
    """Temperature 0, against a forward pass without cache."""
    for [r] in sampler_of(policy, temp=0.0)(TASKS, 1):
        ids = list(r.prompt_ids)
        for token in r.completion_ids:
            with torch.no_grad():
                assert policy.model(torch.tensor([ids])).logits[0, -1].argmax().item() == token
            ids.append(token)


def test_versions_draw_anew_in_training_and_alike_at_gates(policy: Policy) -> None:
    """Two gates differ by their weights alone; two epochs of training do not repeat a draw."""
    training, gate = sampler_of(policy), sampler_of(policy, pin_version=True)
    first = [s(TASKS, 4) for s in (training, gate)]
    policy.version = 1
    second = [s(TASKS, 4) for s in (training, gate)]

    texts = [[[r.text for g in groups for r in g] for groups in pair] for pair in (first, second)]
    assert texts[0][0] != texts[1][0]
    assert texts[0][1] == texts[1][1]
    assert {r.version for g in second[0] for r in g} == {1}


def test_an_abort_lands_between_two_decode_steps(policy: Policy) -> None:
    """A long completion is not waited for."""
    asked = 0

    def third_time() -> bool:
        nonlocal asked
        asked += 1
        return asked == 3

    with pytest.raises(Aborted), rl_hooks(should_abort=third_time):
        sampler_of(policy, max_new_tokens=32)(TASKS, 4)

    assert asked == 3


def test_a_seed_is_a_name_and_its_numbers_are_uniform() -> None:
    """Known value, row independence, range, mean."""
    keys = [key(0, "train", f"q{i}", 1, 0) for i in range(2000)]

    numbers = uniforms(keys, 8)

    assert key(1, "a") != key("1", "a")
    assert uniforms(keys[5:6], 8).tolist() == numbers[5:6].tolist()
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 4 * math.sqrt(1 / 12 / numbers.size)
    # first output of SplitMix64 with state 0 (reference implementation): 0xE220A8397B1DCDAF
    assert uniforms([0], 1)[0, 0] == (0xE220A8397B1DCDAF >> 11) * 2.0**-53


def test_an_empty_completion_is_a_rollout_with_a_verdict(policy: Policy) -> None:
    """A model that ends at once said nothing: one end token, no text, worth 0, and trainable."""
    policy.eos_ids = frozenset(range(13))

    [group] = sampler_of(policy)(TASKS[:1], 4)

    for r in group:
        assert (len(r.completion_ids), r.text, r.truncated) == (1, "", False)
    reward = RewardAdapter(load_verifier("exact"))
    verdicts = reward.judge_all([(r.text, "7") for r in group], [r.truncated for r in group])
    assert {(v.reward, v.reason) for v in verdicts} == {(0.0, Reason.UNPARSED)}
    with torch.no_grad():
        scores = score(policy.model, Batch.of(group, policy.device), 0.8)
    assert scores.logprobs_BT.shape == (4, 1)


def test_a_completion_ends_before_its_first_stop_text(policy: Policy) -> None:
    """Nothing more is decoded; the tokens of the stop text stay, and nothing was cut off."""
    free = sampler_of(policy, max_new_tokens=12)(TASKS, 4)
    whole = [one for group in free for one in group if len(one.text) > 4]
    stop = whole[0].text[2:4]

    groups = sampler_of(policy, max_new_tokens=12, stops=[stop, "never"])(TASKS, 4)

    ended = [one for group in groups for one in group]
    for before, after in zip((one for group in free for one in group), ended, strict=True):
        held = stop in before.text
        assert after.text == before.text.split(stop)[0]
        assert len(after.completion_ids) <= len(before.completion_ids)
        assert after.truncated == (before.truncated and not held)
    assert any(stop in one.text for one in whole)
