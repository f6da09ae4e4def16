"""The sampler on a chat model with everything a real one brings along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.data import word_problems
from engine.data.rows import Question
from engine.models.policy import Policy, build
from engine.rl.scoring import Batch, score
from engine.sampling.base import Rollout
from engine.sampling.hf import HFSampler
from tests.engine.chat_model import END, NOT_ASKED_FOR, STOP, save_chat_model

TASKS = [Question(*row) for row in word_problems.rows()[:6]]
TEMP = 0.9


@pytest.fixture(scope="module", params=[None, END], ids=["no pad token", "pad is an end token"])
def chat(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """Not changed by any test here."""
    return build(str(save_chat_model(tmp_path_factory.mktemp("chat"), pad=request.param)), 0)


@pytest.fixture(scope="module")
def rollouts(chat: Policy) -> list[Rollout]:
    """Enough that both ends were drawn, and the word with id 0."""
    return sampled(chat, k=24)


def sampled(
    policy: Policy, tasks: list[Question] = TASKS, k: int = 8, **more: Any
) -> list[Rollout]:
    settings = {"seed": 4, "purpose": "train", "temp": TEMP, "max_new_tokens": 12, "batch_size": 64}
    groups = HFSampler(policy, **{**settings, **more})(tasks, k)
    return [rollout for group in groups for rollout in group]


@pytest.mark.requirement("EX-01")
def test_nothing_of_the_generation_config_reaches_a_rollout_but_its_ends(chat: Policy) -> None:
    """It says temperature 0.1, top-k 5 and a penalty; the draws are those of temperature 0.9."""
    configured = chat.model.generation_config.to_dict()
    assert {name: configured[name] for name in NOT_ASKED_FOR} == NOT_ASKED_FOR

    first = [r.completion_ids[0] for r in sampled(chat, TASKS[:1], k=2000, max_new_tokens=1)]

    with torch.no_grad():
        logits = chat.model(torch.tensor([chat.encode(TASKS[0].prompt)])).logits[0, -1]
    expected = torch.softmax(logits / TEMP, -1)
    top_five = expected.topk(5).values.sum().item()
    inside = sum(token in expected.topk(5).indices.tolist() for token in first) / len(first)
    assert top_five < 0.5
    assert inside == pytest.approx(top_five, abs=0.05)
    likely = expected > 5 / 2000
    counts = torch.bincount(torch.tensor(first), minlength=len(expected))
    chi2 = ((counts - expected * 2000) ** 2 / (expected * 2000))[likely].sum().item()
    degrees = int(likely.sum())
    assert chi2 < degrees + 4 * (2 * degrees) ** 0.5


@pytest.mark.requirement("EX-01")
def test_the_trainer_reads_the_samplers_logprobs_off_the_same_tokens(
    chat: Policy, rollouts: list[Rollout]
) -> None:
    """Prompts of different lengths are padded in one and not in the other; id 0 is a word."""
    with torch.no_grad():
        batch = Batch.of(rollouts, chat.device)
        scores = score(chat.model, batch, TEMP)

    assert len({len(r.prompt_ids) for r in rollouts}) > 1
    assert any(0 in r.completion_ids for r in rollouts)
    for row, rollout in enumerate(rollouts):
        theirs = scores.logprobs_BT[row][batch.mask_BT[row] > 0].tolist()
        assert len(theirs) == len(rollout.completion_ids)
        assert rollout.logprobs == pytest.approx(theirs, abs=2e-5)


def test_both_ends_end_a_completion_and_the_drawn_one_is_kept(
    chat: Policy, rollouts: list[Rollout]
) -> None:
    """The list of the generation config; whichever was drawn stands last, and not in the text."""
    tokenizer: Any = chat.tokenizer
    ends = set(tokenizer.convert_tokens_to_ids([END, STOP]))

    assert chat.eos_ids == ends
    assert {r.completion_ids[-1] for r in rollouts if not r.truncated} == ends
    for r in rollouts:
        assert ends.isdisjoint(r.completion_ids[:-1])
        assert r.truncated == (r.completion_ids[-1] not in ends)
        assert END not in r.text
        assert STOP not in r.text


@pytest.mark.requirement("EX-03")
@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_completion_is_the_same_alone_and_in_any_batch(
    chat: Policy, rollouts: list[Rollout], batch_size: int
) -> None:
    """Token for token; the log-probabilities to the rounding of a matrix product's shape."""
    whole = [r for r in rollouts if r.sample < 2]

    parted = sampled(chat, k=2, batch_size=batch_size)

    assert [r.completion_ids for r in parted] == [r.completion_ids for r in whole]
    for one, other in zip(parted, whole, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=2e-5)


def test_a_chat_model_saves_and_loads_with_settings_nobody_asked_for(
    chat: Policy, tmp_path: Path
) -> None:
    """A checkpoint carries the folder's generation config on, ends included."""
    chat.save(tmp_path)

    again = build(str(tmp_path / "model"), 0)

    assert again.eos_ids == chat.eos_ids
    assert again.window == chat.window == 160
    assert again.tokenizer.chat_template == chat.tokenizer.chat_template
    assert again.tokenizer.pad_token == chat.tokenizer.pad_token
