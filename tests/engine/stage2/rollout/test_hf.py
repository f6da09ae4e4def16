"""The hf rollout backend on a real tiny Qwen3-VL, and the repeat guard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.contract.sources.records import Record
from engine.contract.stage2.rollout_matching import RepeatGuardConfig, RolloutMatchingConfig
from engine.models.qwen3_vl import VisionModel, forward
from engine.run.stop import Aborted, rl_hooks
from engine.stage2.learn.layout import ModelInputs, padded
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.rollout.base import call_seed, seed_base
from engine.stage2.rollout.hf import HFSampler
from engine.stage2.rollout.prompts import Prompt, PromptReader
from engine.stage2.rollout.repeat_guard import RepeatGuard

NewSampler = Callable[..., HFSampler]


@pytest.fixture
def new_sampler(vlm: VisionModel, pieces: TokenPieces) -> NewSampler:
    def make(**settings: Any) -> HFSampler:
        given = {"rollout_backend": "hf", "max_new_tokens": 8} | settings
        return HFSampler(vlm, pieces, RolloutMatchingConfig.model_validate(given))

    return make


@pytest.fixture
def prompts(records: list[Record], reader: PromptReader) -> list[Prompt]:
    return [reader(record) for record in records[:5]]


@pytest.mark.requirement("AB-13")
def test_the_seed_base_follows_the_formula() -> None:
    """(seed + step · 1000003) & 0x7FFFFFFF, and each call adds its first request's index."""
    assert seed_base(123, 7) == 123 + 7 * 1000003
    assert seed_base(2**31 - 1, 5) == (2**31 - 1 + 5 * 1000003) & 0x7FFFFFFF
    assert call_seed(0x7FFFFFFF, 1) == 0


@pytest.mark.requirement("AB-13")
def test_greedy_rollouts_are_the_argmax_of_a_plain_forward(
    new_sampler: NewSampler, prompts: list[Prompt], vlm: VisionModel
) -> None:
    """Cached decoding with a picture gives the tokens that uncached forwards give."""
    (response,) = new_sampler()(prompts[:1], 0)

    ids = prompts[0].ids
    with torch.inference_mode():
        for token in response.ids:
            layout = padded([ModelInputs(ids, prompts[0].pictures)], vlm, 0)
            logits = forward(vlm.model, layout.inputs() | {"input_ids": layout.ids_BT})
            assert int(logits[0, -1].argmax()) == token
            ids = (*ids, token)
    assert len(response.ids) == 8


@pytest.mark.requirement("AB-13")
def test_greedy_rollouts_are_the_same_each_time_and_under_any_seed(
    new_sampler: NewSampler, prompts: list[Prompt]
) -> None:
    """Temperature 0 draws nothing."""
    sampler = new_sampler()

    assert sampler(prompts, 1) == sampler(prompts, 1) == sampler(prompts, 2)


@pytest.mark.requirement("AB-13")
def test_sampled_rollouts_repeat_under_one_seed_and_differ_under_another(
    new_sampler: NewSampler, prompts: list[Prompt]
) -> None:
    """Each decode call is seeded; the process's own random state is left as it was."""
    sampler = new_sampler(decoding={"temperature": 1.0})
    before = torch.get_rng_state()

    first = sampler(prompts, 11)

    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert sampler(prompts, 11) == first
    assert sampler(prompts, 12) != first


@pytest.mark.requirement("AB-13")
def test_the_checkpoints_sampling_defaults_do_not_leak_into_rollouts(
    new_sampler: NewSampler, prompts: list[Prompt], vlm: VisionModel
) -> None:
    """A generation_config.json with a penalty or a minimum length changes nothing."""
    expected = new_sampler()(prompts, 0)
    config: Any = vlm.model.generation_config
    config.repetition_penalty, config.suppress_tokens = 5.0, [expected[0].ids[0]]
    config.do_sample, config.temperature = True, 3.0

    assert new_sampler()(prompts, 0) == expected
    assert vlm.model.generation_config is config


@pytest.mark.requirement("AB-11")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_pictures_placeholder_is_never_answered(
    temperature: float, new_sampler: NewSampler, prompts: list[Prompt], vlm: VisionModel
) -> None:
    """Also when nothing is likelier: no picture would belong to it."""
    sampler = new_sampler(decoding={"temperature": temperature})
    unsayable = torch.tensor(sorted(sampler.pieces.placeholders))
    model: Any = vlm.model
    model.lm_head.register_forward_hook(lambda _, __, out: out.index_fill(-1, unsayable, 99.0))

    answered = {token for response in sampler(prompts, 0) for token in response.ids}

    assert len(unsayable) == 2
    assert answered
    assert answered.isdisjoint(unsayable.tolist())


@pytest.mark.requirement("AB-23")
@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_decode_batch_sets_the_calls_and_not_the_answers(
    size: int, new_sampler: NewSampler, prompts: list[Prompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five prompts in calls of `decode_batch_size`; greedy answers do not depend on it."""
    expected = new_sampler(decode_batch_size=5)(prompts, 0)
    sampler = new_sampler(decode_batch_size=size)
    calls: list[int] = []
    model: Any = sampler.vlm.model
    generate = model.generate

    def counting(**given: Any) -> Any:
        calls.append(len(given["input_ids"]))
        return generate(**given)

    monkeypatch.setattr(model, "generate", counting)

    assert sampler(prompts, 0) == expected
    assert calls == {1: [1] * 5, 2: [2, 2, 1], 5: [5]}[size]


def test_prompts_of_unequal_length_answer_as_they_do_alone(
    new_sampler: NewSampler, prompts: list[Prompt]
) -> None:
    """Padding on the left is neither seen nor counted."""
    shorter = replace(prompts[1], ids=prompts[1].ids[:-2])
    sampler = new_sampler(decode_batch_size=2)

    together = sampler([prompts[0], shorter], 0)

    assert together == [*sampler([prompts[0]], 0), *sampler([shorter], 0)]


def test_a_rollout_can_be_stopped_between_two_tokens(
    new_sampler: NewSampler, prompts: list[Prompt]
) -> None:
    """An abort does not wait for 3,000 tokens."""
    asked: list[None] = []

    def should_abort() -> bool:
        asked.append(None)
        return len(asked) == 3

    with rl_hooks(should_abort=should_abort), pytest.raises(Aborted):
        new_sampler()(prompts, 0)
    assert len(asked) == 3


def test_training_mode_survives_a_rollout(
    new_sampler: NewSampler, prompts: list[Prompt], vlm: VisionModel
) -> None:
    """Rollouts run without dropout and give the learner its mode back."""
    vlm.model.train()

    new_sampler()(prompts[:1], 0)

    assert vlm.model.training
    assert vlm.core.rope_deltas is None


def test_the_repeat_guard_ends_its_row_and_no_other(
    new_sampler: NewSampler, prompts: list[Prompt]
) -> None:
    """A row that is cut says so, and keeps what it had said up to there."""
    free = new_sampler(decode_batch_size=5, max_new_tokens=12)(prompts, 0)
    guard = {"min_new_tokens": 3, "max_consecutive_token_repeats": 2}

    found = new_sampler(decode_batch_size=5, max_new_tokens=12, repeat_terminate=guard)(prompts, 0)

    for one, whole in zip(found, free, strict=True):
        watch = RepeatGuard(RepeatGuardConfig.model_validate(guard))
        fed = [watch.feed(i, b"") for i in whole.ids]
        assert one.guarded == any(fed)
        assert one.ids == whole.ids[: fed.index(True) + 1 if any(fed) else None]


GUARD = RepeatGuardConfig(
    min_new_tokens=4,
    max_consecutive_token_repeats=3,
    ngram_size=2,
    ngram_repeats=3,
    max_object_keys=2,
)


@pytest.mark.parametrize(
    ("ids", "stops_at"),
    [
        ([1, 2, 2, 2], 4),
        ([2, 2, 2, 3], None),  # the run is over before the guard looks
        ([1, 2, 1, 2, 1, 2], 6),
        ([1, 2, 3, 4, 5, 6, 7], None),
    ],
)
def test_the_guard_counts_runs_and_stretches(ids: list[int], stops_at: int | None) -> None:
    """Three equal tokens in a row, or a pair seen three times, from the fourth token on."""
    guard = RepeatGuard(GUARD)

    found = [guard.feed(i, b"x") for i in ids]

    assert (found.index(True) + 1 if any(found) else None) == stops_at


def test_the_guard_counts_object_keys_across_tokens() -> None:
    """A third key ends the row, however the tokenizer cuts it."""
    guard = RepeatGuard(GUARD)
    text = [b'{"obj', b'ect_1"', b": 1, ", b'"object_2"', b":", b' {"object_', b"3", b'" :']

    found = [guard.feed(i, piece) for i, piece in enumerate(text)]

    assert found == [False] * 7 + [True]


def test_a_guard_switched_off_never_stops() -> None:
    """enabled: false."""
    guard = RepeatGuard(RepeatGuardConfig(enabled=False, min_new_tokens=0))

    assert not any(guard.feed(1, b"x") for _ in range(500))
