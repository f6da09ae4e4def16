"""What a run needs of a server, on the stand-in and, by `make test-vllm`, on the real vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.contract.serving import Serving
from engine.data import word_problems
from engine.data.rows import Question
from engine.models import lora as adapters
from engine.models.policy import Policy, build
from engine.rl.scoring import Batch, score
from engine.run.stop import Aborted, rl_hooks
from engine.sampling.base import Rollout
from engine.sampling.vllm.client import Request, ServerApi, ServerError
from engine.sampling.vllm.launch import Needs, ServingLane
from engine.sampling.vllm.sampler import VLLMServerSampler
from engine.sampling.vllm.sync import Synced
from tests.engine.chat_model import END, NOT_ASKED_FOR, STOP

TASKS = [Question(*row) for row in word_problems.rows()[:6]]
TEMP = 0.9
SAME = 2e-4
"""Nats between two exact programs in fp32."""


@pytest.fixture(scope="module")
def policy(chat_base: Path) -> Policy:
    """With an adapter that changes something already."""
    policy = build(str(chat_base), 0)
    policy.model = adapters.attach_zero(policy.model, base=str(chat_base), rank=4, alpha=8, seed=1)
    _move(policy, 0.05)
    return policy


@pytest.fixture(scope="module")
def lane(
    serving: Serving, policy: Policy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServingLane]:
    """Up for all tests of a server."""
    place = tmp_path_factory.mktemp("lane")
    lane = ServingLane(
        serving,
        Needs(policy.model.get_base_model().config._name_or_path, "float32", 120, 64, 4, 1, None),
        policy,
        contexts=[policy.encode(task.prompt) for task in TASKS],
        folder=place / "serving",
        log=place / "serving.log",
        tolerance=0.001,
        say=lambda *_: None,
    )
    with lane:
        yield lane


@pytest.fixture
def synced(lane: ServingLane, monkeypatch: pytest.MonkeyPatch) -> list[Synced]:
    """What the lane tells of its syncs."""
    heard: list[Synced] = []
    monkeypatch.setattr(lane, "_listen", heard.append)
    return heard


def _move(policy: Policy, size: float, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))


def sampler(lane: ServingLane, policy: Policy, **settings: Any) -> VLLMServerSampler:
    defaults: dict[str, Any] = {"seed": 4, "purpose": "train", "temp": TEMP, "max_new_tokens": 12}
    encode = lambda task: policy.encode(task.prompt)  # noqa: E731
    return VLLMServerSampler(lane=lane, policy=policy, encode=encode, **(defaults | settings))


def flat(groups: Any) -> list[Rollout]:
    return [rollout for group in groups for rollout in group]


def gap(policy: Policy, rollouts: list[Rollout], temp: float) -> float:
    """Largest difference of a token's log-probability between server and trainer."""
    with torch.no_grad():
        batch = Batch.of(rollouts, policy.device)
        scores = score(policy.model, batch, temp)
    largest = 0.0
    for row, rollout in enumerate(rollouts):
        theirs = scores.logprobs_BT[row][batch.mask_BT[row] > 0].tolist()
        pairs = zip(rollout.logprobs, theirs, strict=True)
        largest = max(largest, *(abs(ours - other) for ours, other in pairs))
    return largest


@pytest.mark.requirement("RL-09")
def test_the_trainer_reads_the_servers_logprobs_off_the_same_tokens(
    lane: ServingLane, policy: Policy
) -> None:
    """At the sampling temperature, so that an importance ratio between the two begins at 1."""
    for temp in (TEMP, 1.0, 0.2):
        rollouts = flat(sampler(lane, policy, temp=temp)(TASKS, 4))

        assert len(rollouts) == 24
        assert gap(policy, rollouts, temp) < SAME
        assert [r.question_id for r in rollouts[::4]] == [task.id for task in TASKS]
        assert [r.sample for r in rollouts[:4]] == [0, 1, 2, 3]


@pytest.mark.requirement("RL-09")
def test_a_completion_ends_at_the_runs_own_end_tokens(lane: ServingLane, policy: Policy) -> None:
    """Both of the generation config; whichever was drawn stands last, and not in the text."""
    tokenizer: Any = policy.tokenizer
    ends = set(tokenizer.convert_tokens_to_ids([END, STOP]))

    rollouts = flat(sampler(lane, policy, temp=2.0)(TASKS, 32))

    assert {r.completion_ids[-1] for r in rollouts if not r.truncated} == ends
    for r in rollouts:
        assert ends.isdisjoint(r.completion_ids[:-1])
        assert r.truncated == (r.completion_ids[-1] not in ends)
        assert not r.truncated or len(r.completion_ids) == 12
        assert END not in r.text


@pytest.mark.requirement("EX-03", "RL-09")
def test_a_seed_draws_the_same_alone_and_among_others(lane: ServingLane, policy: Policy) -> None:
    """It depends on who the draw is for; the samples of a question are not copies of each other."""
    whole = sampler(lane, policy)(TASKS, 4)
    [alone] = sampler(lane, policy)(TASKS[2:3], 4)
    other = sampler(lane, policy, seed=5)(TASKS, 4)

    assert [r.completion_ids for r in alone] == [r.completion_ids for r in whole[2]]
    assert len({r.completion_ids for r in flat(whole)}) > 20
    assert [r.completion_ids for r in flat(other)] != [r.completion_ids for r in flat(whole)]


def test_a_later_draw_of_a_question_is_another_and_a_gates_is_not(
    lane: ServingLane, policy: Policy
) -> None:
    """The curriculum's count goes into the seed; a pinned sampler leaves it out."""
    later = [replace(task, draw=7) for task in TASKS]

    for pinned in (False, True):
        draw = sampler(lane, policy, pin_version=pinned)
        first, second = flat(draw(TASKS, 2)), flat(draw(later, 2))
        same = [r.completion_ids for r in first] == [r.completion_ids for r in second]
        assert same == pinned


@pytest.mark.requirement("EX-01")
def test_nothing_of_the_generation_config_reaches_a_rollout(
    lane: ServingLane, policy: Policy
) -> None:
    """It says temperature 0.1, top-k 5 and a penalty; the draws are those of temperature 0.9."""
    configured = policy.model.generation_config.to_dict()
    assert {name: configured[name] for name in NOT_ASKED_FOR} == NOT_ASKED_FOR

    first = [
        r.completion_ids[0] for r in flat(sampler(lane, policy, max_new_tokens=1)(TASKS[:1], 400))
    ]

    with torch.no_grad():
        ids = torch.tensor([policy.encode(TASKS[0].prompt)])
        expected = torch.softmax(policy.model(ids).logits[0, -1] / TEMP, -1)
    top_five = expected.topk(5).values.sum().item()
    inside = sum(token in expected.topk(5).indices.tolist() for token in first) / len(first)
    assert inside == pytest.approx(top_five, abs=0.1)


def test_greedy_takes_the_likeliest_token(lane: ServingLane, policy: Policy) -> None:
    """Temperature 0, as a held-out gate may ask."""
    rollouts = flat(sampler(lane, policy, temp=0.0, pin_version=True)(TASKS, 1))

    for r in rollouts:
        with torch.no_grad():
            ids = torch.tensor([[*r.prompt_ids, *r.completion_ids]])
            logits = policy.model(ids).logits[0]
        begin = len(r.prompt_ids) - 1
        assert logits[begin:-1].argmax(-1).tolist() == list(r.completion_ids)


@pytest.mark.requirement("RL-09")
def test_new_weights_answer_after_a_swap_and_the_old_adapter_is_gone(
    lane: ServingLane, policy: Policy, synced: list[Synced]
) -> None:
    """Each swap is proven by log-probabilities; what is served already is not sent again."""
    draw = sampler(lane, policy)
    before = flat(draw(TASKS, 4))
    heard = len(synced)

    for number in range(3):
        _move(policy, 0.05, seed=10 + number)
        rollouts = flat(draw(TASKS, 4))
        draw(TASKS, 1)

        assert gap(policy, rollouts, TEMP) < SAME
        assert len(synced) == heard + number + 1
        assert synced[-1].compared.gap < SAME
        moved = synced[-1].compared.moved
        assert moved is not None
        assert moved > 100 * synced[-1].compared.gap
    assert gap(policy, before, TEMP) > 0.01
    assert len(list(lane._folder.iterdir())) == 1


@pytest.mark.requirement("RL-09")
def test_a_small_step_is_told_from_the_weights_of_before(
    lane: ServingLane, policy: Policy, synced: list[Synced]
) -> None:
    """One that moves a log-probability far less than the tolerance allows."""
    sampler(lane, policy)(TASKS[:1], 1)

    _move(policy, 2e-5, seed=3)
    sampler(lane, policy)(TASKS[:1], 1)

    compared = synced[-1].compared
    assert compared.moved is not None
    assert compared.gap < compared.moved / 2 < 0.001
    assert not compared.stale


@pytest.mark.requirement("RL-09")
@pytest.mark.parametrize(
    ("size", "said"),
    [
        (0.05, "nats a token away from the trainer's model, more than sync_tolerance=0.001"),
        (2e-5, "still answers with the weights of before"),
    ],
)
def test_a_load_that_changed_nothing_is_found_out(
    lane: ServingLane, policy: Policy, size: float, said: str
) -> None:
    """A 200 proves nothing: the server's log-probabilities must be those of the new weights."""
    sampler(lane, policy)(TASKS[:1], 1)
    _move(policy, size, seed=21)

    with pytest.raises(ServerError, match=said):
        lane._sync.bring(lambda _: None)

    sampler(lane, policy)(TASKS[:1], 1)


def test_a_stop_reaches_a_decode_and_the_server_goes_on(lane: ServingLane, policy: Policy) -> None:
    """The requests are given up; the next ones are answered."""
    asked = 0

    def should_abort() -> bool:
        nonlocal asked
        asked += 1
        return asked > 1

    with rl_hooks(should_abort=should_abort), pytest.raises(Aborted):
        sampler(lane, policy, max_new_tokens=40)(TASKS, 16)

    assert len(flat(sampler(lane, policy)(TASKS, 1))) == 6


def test_a_refusal_is_one_line(lane: ServingLane, policy: Policy) -> None:
    """With the server's own words."""
    ids = policy.encode(TASKS[0].prompt) * 20
    request = Request(ids, k=1, seed=0, temp=1.0, max_new_tokens=4, end_ids=(0,))

    with pytest.raises(ServerError, match=r"refused with status 400: .*length") as caught:
        lane.complete([request])

    assert "\n" not in str(caught.value)


def test_a_server_is_known_by_its_models_and_version(lane: ServingLane, serving: Serving) -> None:
    """What a run goes by before it uses a server that was there."""
    api = ServerApi(serving)
    base, adapter = api.models()

    assert api.answers()
    assert api.version().startswith("0.")
    assert (base.parent, base.window) == (None, 120)
    assert (adapter.name, adapter.parent is not None) == ("policy", True)
