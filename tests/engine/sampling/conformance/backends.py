"""The backends that draw, for the suite that asks all of them and the tests that ask one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.contract.serving import Serving
from engine.data import word_problems
from engine.data.rows import Question
from engine.models import lora
from engine.models.policy import Policy, build
from engine.rl.scoring import Batch, score
from engine.sampling.base import OwnWeights, Rollout, Sampler, WeightSync
from engine.sampling.hf import HFSampler
from engine.sampling.rollouts import Rollouts
from engine.sampling.vllm.checks import ReplyCheck
from engine.sampling.vllm.client import ServerApi
from engine.sampling.vllm.endpoint import Drawn, Request
from engine.sampling.vllm.fleet import Fleet
from engine.sampling.vllm.infer import InferApi
from engine.sampling.vllm.lane import ServingLane
from engine.sampling.vllm.launch import Needs
from engine.sampling.vllm.sampler import VLLMServerSampler

Backend = Callable[..., Rollouts]
"""`backend(temp=0.2)`: the policy's rollouts with these settings."""

TASKS = [Question(*row) for row in word_problems.rows()[:6]]
TEMP = 0.9
SAME = 1e-4
"""Nats between two exact programs in fp32."""


@pytest.fixture(scope="module")
def policy(chat_base: Path) -> Policy:
    """With an adapter that changes something already."""
    policy = build(str(chat_base), 0)
    policy.model = lora.attach_zero(policy.model, base=str(chat_base), rank=4, alpha=8, seed=1)
    move(policy, 0.05)
    return policy


@pytest.fixture(scope="module")
def lane(
    serving: Serving, policy: Policy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServingLane]:
    """Up for all tests of a server."""
    with new_lane(serving, policy, tmp_path_factory.mktemp("lane")) as lane:
        yield lane


def new_lane(serving: Serving, policy: Policy, place: Path) -> ServingLane:
    """Not up yet; its files lie in `place`."""
    return ServingLane(
        serving,
        Needs(policy.model.get_base_model().config._name_or_path, "float32", 120, 64, 4, 1, None),
        policy,
        contexts=[policy.encode(task.prompt) for task in TASKS],
        folder=place / "serving",
        log=place / "serving.log",
        tolerance=0.001,
        say=lambda *_: None,
    )


def move(policy: Policy, size: float, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))


@dataclass
class FleetLane:
    """A fleet over servers that are up, each with its own weight sync."""

    lanes: Sequence[ServingLane]
    fleet: Fleet

    def bring(self) -> None:
        """To every server."""
        for lane in self.lanes:
            lane.bring()

    def complete(self, requests: Sequence[Request]) -> list[list[Drawn]]:
        """By all of them."""
        return self.fleet.complete("policy", requests, at_once=8)


def fleet_lane(policy: Policy, servers: Sequence[tuple[ServingLane, Serving]]) -> FleetLane:
    """Over OpenAI-style routes."""
    check = ReplyCheck(policy.known_tokens, policy.tokenizer)
    apis = [ServerApi(serving, check=check) for _, serving in servers]
    return FleetLane([lane for lane, _ in servers], Fleet(apis))


def infer_lane(policy: Policy, lane: ServingLane, serving: Serving) -> FleetLane:
    """Over ms-swift's routes of the same server."""
    check = ReplyCheck(policy.known_tokens, policy.tokenizer)
    api = InferApi(serving.root, batch_size=8, check=check)
    return FleetLane([lane], Fleet([api]))


def conversation(task: Question) -> tuple[dict[str, str], ...]:
    """What a chat program would send."""
    return ({"role": "user", "content": task.prompt},)


def in_conversation(policy: Policy) -> dict[str, Any]:
    """Settings of a sampler whose routes take conversations."""
    tokenizer: Any = policy.tokenizer

    def encode(task: Question) -> tuple[int, ...]:
        told = tokenizer.apply_chat_template(
            list(conversation(task)), add_generation_prompt=True, return_dict=False
        )
        return tuple(told)

    return {"encode": encode, "messages": conversation}


def backend_of(policy: Policy, lane: ServingLane | FleetLane | None, **own: Any) -> Backend:
    """Of a serving lane, or of the policy itself."""

    def make(**settings: Any) -> Rollouts:
        known: dict[str, Any] = {
            "policy": policy,
            "seed": 4,
            "purpose": "train",
            "temp": TEMP,
            "max_new_tokens": 12,
            "encode": lambda task: policy.encode(task.prompt),
            **own,
        }
        sampler: Sampler
        sync: WeightSync
        if lane is None:
            sampler, sync = HFSampler(batch_size=64, **(known | settings)), OwnWeights()
        else:
            sampler, sync = VLLMServerSampler(lane=lane, **(known | settings)), lane
        return Rollouts(sampler, sync, lambda _: "")

    return make


def flat(groups: Any) -> list[Rollout]:
    return [rollout for group in groups for rollout in group]


def gap(policy: Policy, rollouts: list[Rollout], temp: float) -> float:
    """Largest difference of a token's log-probability between sampler and trainer."""
    with torch.no_grad():
        batch = Batch.of(rollouts, policy.device)
        scores = score(policy.model, batch, temp)
    largest = 0.0
    for row, rollout in enumerate(rollouts):
        theirs = scores.logprobs_BT[row][batch.mask_BT[row] > 0].tolist()
        pairs = zip(rollout.logprobs, theirs, strict=True)
        largest = max(largest, *(abs(ours - other) for ours, other in pairs))
    return largest
