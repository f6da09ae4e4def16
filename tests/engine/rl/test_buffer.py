"""The rollout buffer: bounded, fresh, and every group accounted for."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from engine.data.rows import Question
from engine.rl.buffer import BufferClosedError, JudgedGroup, RolloutBuffer
from tests.deadline import eventually


def group(name: str, version: int = 0) -> JudgedGroup:
    return JudgedGroup(Question(name, f"{name}=", "7"), (), (), (), version, version + 1)


def names(groups: list[JudgedGroup | None]) -> list[str | None]:
    return [None if one is None else one.task.id for one in groups]


def filled(*given: str, **settings: int) -> RolloutBuffer:
    buffer = RolloutBuffer(**({"capacity": 8} | settings))
    for name in given:
        assert buffer.put(group(name), timeout_s=0)
    return buffer


@pytest.mark.requirement("EX-15")
def test_a_group_goes_back_to_the_tail_until_its_reads_are_used_up() -> None:
    """Two reads each: a b, then a b again, then nothing."""
    buffer = filled("a", "b", max_reads=2)

    read = [buffer.pop(timeout_s=0) for _ in range(5)]

    assert names(read) == ["a", "b", "a", "b", None]
    assert buffer.totals() == {"used": 2, "wasted": 0, "filtered": 0, "failed": 0}


@pytest.mark.requirement("EX-15")
@pytest.mark.parametrize(
    ("max_staleness", "advanced", "left"),
    [(0, 0, 2), (0, 1, 0), (1, 1, 2), (1, 2, 0), (3, 3, 2)],
)
def test_stale_is_a_version_under_the_trainers_minus_the_allowance(
    max_staleness: int, advanced: int, left: int
) -> None:
    """Evicted when the trainer advances, before anybody asks for a group."""
    buffer = filled("a", "b", max_staleness=max_staleness)

    evicted = buffer.advance(advanced)

    assert (len(buffer), evicted) == (left, 2 - left)


@pytest.mark.requirement("EX-15")
def test_an_evicted_prompt_returns_to_the_front_the_oldest_first() -> None:
    """Its rollouts are wasted, the prompt is not."""
    buffer = filled("a", "b", "c")

    buffer.advance(1)

    assert [q.id for q in buffer.take_returned(2)] == ["a", "b"]
    assert [q.id for q in buffer.take_returned(5)] == ["c"]
    assert buffer.fates == {0: {"wasted": 3}}


def test_a_group_that_was_trained_on_is_not_wasted_when_it_goes_stale() -> None:
    """It was used once; its second read is gone, its prompt had its turn."""
    buffer = filled("a", "b", max_reads=2)
    buffer.pop(timeout_s=0)

    buffer.advance(1)

    assert buffer.totals() == {"used": 1, "wasted": 1, "filtered": 0, "failed": 0}
    assert [q.id for q in buffer.take_returned(5)] == ["b"]


@pytest.mark.requirement("EX-15")
def test_fates_are_counted_under_the_version_that_sampled() -> None:
    """Filtered and failed groups never enter, and are counted all the same."""
    buffer = filled("a", max_staleness=5)
    buffer.put(group("b", version=3), timeout_s=0)
    buffer.discard(group("c", version=3), "filtered")
    buffer.discard(group("d", version=0), "failed")
    buffer.pop(timeout_s=0)
    buffer.pop(timeout_s=0)

    assert buffer.fates == {0: {"failed": 1, "used": 1}, 3: {"filtered": 1, "used": 1}}


@pytest.mark.requirement("EX-15")
def test_a_full_buffer_refuses_and_never_grows() -> None:
    """The group stays with its sampler."""
    buffer = filled("a", "b", capacity=2)

    assert buffer.put(group("c"), timeout_s=0) is False
    assert len(buffer) == 2
    assert buffer.totals()["wasted"] == 0


@pytest.mark.requirement("EX-15")
def test_a_sampler_waits_for_room_and_a_trainer_for_groups() -> None:
    """Back-pressure: a put blocks on a full buffer until a pop makes room."""
    buffer = filled("a", capacity=1)
    done = threading.Event()

    def sampler() -> None:
        buffer.put(group("b"))
        done.set()

    thread = threading.Thread(target=sampler)
    thread.start()
    eventually(lambda: buffer._changed._waiters, "the sampler waits")  # type: ignore[attr-defined]
    assert not done.is_set()

    first, second = buffer.pop(timeout_s=5), buffer.pop(timeout_s=5)
    thread.join(5)

    assert names([first, second]) == ["a", "b"]
    assert done.is_set()
    assert buffer.blocked_s > 0


@pytest.mark.requirement("EX-15")
def test_what_went_stale_while_its_sampler_waited_is_not_let_in() -> None:
    """Room comes with the advance that made the group stale."""
    buffer = filled("a", capacity=1)
    let_in: list[bool] = []
    thread = threading.Thread(target=lambda: let_in.append(buffer.put(group("b"))))
    thread.start()
    eventually(lambda: buffer._changed._waiters, "the sampler waits")  # type: ignore[attr-defined]

    buffer.advance(1)
    thread.join(5)

    assert let_in == [False]
    assert [q.id for q in buffer.take_returned(5)] == ["b", "a"]


def test_closing_wakes_everybody() -> None:
    """What is inside can still be popped; then both sides hear that it is over."""
    buffer = filled("a", capacity=1)
    ended: list[str] = []

    def sampler() -> None:
        try:
            buffer.put(group("b"))
        except BufferClosedError:
            ended.append("sampler")

    thread = threading.Thread(target=sampler)
    thread.start()
    eventually(lambda: buffer._changed._waiters, "the sampler waits")  # type: ignore[attr-defined]
    buffer.close()
    thread.join(5)

    assert ended == ["sampler"]
    assert names([buffer.pop()]) == ["a"]
    with pytest.raises(BufferClosedError):
        buffer.pop()


@pytest.mark.requirement("EX-15")
def test_with_many_actors_every_group_has_exactly_one_fate() -> None:
    """Four samplers, one trainer that advances every fifth group, staleness 1, eight places."""
    buffer = RolloutBuffer(capacity=8, max_staleness=1)
    per_sampler, samplers = 100, 4
    longest = 0

    def sample(number: int) -> None:
        for i in range(per_sampler):
            buffer.put(group(f"{number}-{i}", version=buffer.version))

    threads = [threading.Thread(target=sample, args=(n,)) for n in range(samplers)]
    for thread in threads:
        thread.start()
    stale = 0
    popped: Counter[str] = Counter()
    while any(thread.is_alive() for thread in threads) or len(buffer):
        longest = max(longest, len(buffer))
        found = buffer.pop(timeout_s=0.05)
        if found is None:
            continue
        stale += found.version < buffer.version - 1
        popped[found.task.id] += 1
        if sum(popped.values()) % 5 == 0:
            buffer.advance(buffer.version + 1)
    for thread in threads:
        thread.join(5)

    totals = buffer.totals()
    assert sum(totals.values()) == per_sampler * samplers
    assert totals["used"] == sum(popped.values())
    assert max(popped.values()) == 1
    assert stale == 0
    assert longest <= 8
