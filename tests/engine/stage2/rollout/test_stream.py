"""A step's rollouts as they come: one decode call is drawn while another one is learnt."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from engine.contract.sources.records import Record
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.run.stop import Aborted, rl_hooks
from engine.sampling.vllm.endpoint import Drawn, Request
from engine.stage2.rollout.base import call_seed
from engine.stage2.rollout.prompts import PromptReader, Unread
from engine.stage2.rollout.vllm import VLLMSampler

PATIENCE_S = 30.0


class GatedLane:
    """Answers each call once the test lets it; knows which calls have begun."""

    def __init__(self, reader: PromptReader, calls: int) -> None:
        self.begun = [threading.Event() for _ in range(calls)]
        self.released = [threading.Event() for _ in range(calls)]
        self.seeds: list[list[int]] = []
        self.fails_at: int | None = None
        self._answer = tuple(reader.pieces.encode("{}"))

    def bring(self) -> None:
        """Nothing to do."""

    def complete(self, requests: Sequence[Request]) -> Sequence[Sequence[Drawn]]:
        place = len(self.seeds)
        self.seeds.append([request.seed for request in requests])
        self.begun[place].set()
        assert self.released[place].wait(PATIENCE_S)
        if place == self.fails_at:
            raise RuntimeError("the server is gone")
        return [[Drawn(self._answer, ())] for _ in requests]


@pytest.fixture
def lane(reader: PromptReader) -> GatedLane:
    return GatedLane(reader, 3)


def sampler_of(lane: GatedLane, reader: PromptReader) -> VLLMSampler:
    config = RolloutMatchingConfig(decode_batch_size=2, max_new_tokens=8)
    return VLLMSampler(lane, reader, config, limit=1e9)


@pytest.mark.requirement("AB-22")
def test_the_next_call_is_drawn_while_one_is_learnt_and_none_beyond_it(
    lane: GatedLane, reader: PromptReader, records: list[Record]
) -> None:
    """Five prompts in calls of two; whoever learns from the first finds the second under way."""
    coming = sampler_of(lane, reader).stream(Unread(reader, records[:5]), 7)
    lane.released[0].set()

    first = next(coming)

    assert len(first.responses) == 2
    assert lane.begun[1].wait(PATIENCE_S)
    assert not lane.begun[2].is_set()
    lane.released[1].set()
    second = next(coming)
    assert lane.begun[2].wait(PATIENCE_S)
    lane.released[2].set()
    third = next(coming)
    assert next(coming, None) is None
    assert [len(one.responses) for one in (first, second, third)] == [2, 2, 1]
    flat = [seed for call in lane.seeds for seed in call]
    assert flat == [call_seed(7, place) for place in range(5)]


def test_a_call_that_fails_beside_the_learner_fails_the_step(
    lane: GatedLane, reader: PromptReader, records: list[Record]
) -> None:
    lane.fails_at = 1
    for one in lane.released:
        one.set()
    coming = sampler_of(lane, reader).stream(Unread(reader, records[:5]), 7)
    next(coming)

    with pytest.raises(RuntimeError, match="the server is gone"):
        next(coming)
    assert not lane.begun[2].is_set()


def test_who_learns_and_is_stopped_leaves_no_call_behind(
    lane: GatedLane, reader: PromptReader, records: list[Record]
) -> None:
    """The thread is gone when the stream is closed."""
    for one in lane.released:
        one.set()
    coming = sampler_of(lane, reader).stream(Unread(reader, records[:5]), 7)
    next(coming)

    coming.close()

    assert not [one for one in threading.enumerate() if one.name == "rollouts"]


def test_a_stop_is_heard_while_nothing_is_there_to_learn(
    lane: GatedLane, reader: PromptReader, records: list[Record]
) -> None:
    coming = sampler_of(lane, reader).stream(Unread(reader, records[:5]), 7)

    def asked() -> bool:
        if lane.begun[0].is_set():
            lane.released[0].set()
            return True
        return False

    with rl_hooks(should_abort=asked), pytest.raises(Aborted):
        next(coming)
