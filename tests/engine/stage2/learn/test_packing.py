"""Packing: oldest first, never emptier than in order, nothing split, nothing lost."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.stage2 import LENGTHS, carried_fill, fifo_fill
from engine.stage2.learn.packing import Packer, PackingError, fullest, pack_window

SOME = settings(max_examples=200, deadline=None, derandomize=True, database=None)
LENGTHS_OF_SOME = st.lists(st.integers(1, 60), min_size=1, max_size=30)


def fifo_count(lengths: list[int], capacity: int) -> int:
    """How many leading segments fit before one does not."""
    total = count = 0
    for length in lengths:
        if total + length > capacity:
            break
        total, count = total + length, count + 1
    return count


def packer(capacity: int, buffer: int = 1000, min_fill: float = 0.0001) -> Packer[int]:
    return Packer(capacity=capacity, buffer=buffer, min_fill=min_fill)


@pytest.mark.requirement("AB-26")
@SOME
@given(lengths=LENGTHS_OF_SOME, capacity=st.integers(60, 120))
def test_a_pack_holds_the_oldest_and_is_never_emptier_than_fifo(
    lengths: list[int], capacity: int
) -> None:
    """And it fits."""
    chosen = fullest(lengths, capacity)

    total = sum(lengths[i] for i in chosen)
    assert chosen[0] == 0
    assert chosen == sorted(set(chosen))
    assert sum(lengths[: fifo_count(lengths, capacity)]) <= total <= capacity


@pytest.mark.requirement("AB-26")
@SOME
@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=9), capacity=st.integers(20, 50))
def test_no_other_choice_with_the_oldest_is_fuller(lengths: list[int], capacity: int) -> None:
    """Subset sum, against every subset."""
    sums = {lengths[0]}
    for length in lengths[1:]:
        sums |= {s + length for s in sums}

    assert sum(lengths[i] for i in fullest(lengths, capacity)) == max(
        s for s in sums if s <= capacity
    )


@pytest.mark.requirement("AB-26")
@SOME
@given(lengths=LENGTHS_OF_SOME)
def test_every_segment_leaves_the_packer_once_and_whole(lengths: list[int]) -> None:
    """Carried over from pack to pack, the oldest first, until nothing waits."""
    waiting = packer(60)
    for index, length in enumerate(lengths):
        waiting.insert(index, length)
    seen: list[int] = []
    while (pack := waiting.take()) is not None:
        assert pack.items[0] == min(set(range(len(lengths))) - set(seen))
        assert pack.length == sum(lengths[i] for i in pack.items) <= pack.capacity
        seen += pack.items

    assert sorted(seen) == list(range(len(lengths)))
    assert len(waiting) == 0


@pytest.mark.requirement("AB-26")
@SOME
@given(lengths=LENGTHS_OF_SOME)
def test_a_window_needs_no_more_packs_than_in_order(lengths: list[int]) -> None:
    """Every segment once, packs in the order of their oldest."""
    packs = pack_window(list(range(len(lengths))), lengths, 60)

    in_order, left = 0, lengths
    while left:
        in_order, left = in_order + 1, left[fifo_count(left, 60) :]
    assert len(packs) <= in_order
    assert sorted(i for pack in packs for i in pack.items) == list(range(len(lengths)))
    assert [pack.items[0] for pack in packs] == sorted(pack.items[0] for pack in packs)
    assert all(pack.length <= 60 for pack in packs)


def test_packing_is_deterministic() -> None:
    """The same arrivals give the same packs."""
    lengths = random.Random(1).choices(range(1, 400), k=200)

    assert pack_window(range(200), lengths, 1000) == pack_window(range(200), lengths, 1000)


@pytest.mark.requirement("AB-26")
@pytest.mark.parametrize("length", [101, 0])
def test_an_oversize_segment_is_refused_at_insertion(length: int) -> None:
    """Named with both lengths and the remedy; nothing was taken in."""
    waiting = packer(100)

    with pytest.raises(
        PackingError, match=f"{length} tokens does not fit into a pack of 100; raise"
    ):
        waiting.insert(1, length)
    with pytest.raises(PackingError, match="global_max_length"):
        pack_window([1], [length], 100)

    assert len(waiting) == 0
    assert waiting.take() is None


def test_a_full_buffer_is_refused() -> None:
    """It bounds memory; the caller takes a pack first."""
    waiting = packer(100, buffer=1)
    waiting.insert(1, 10)

    with pytest.raises(PackingError, match="packing_buffer"):
        waiting.insert(2, 10)


def test_a_poor_fill_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Under packing_min_fill_ratio, with both numbers."""
    waiting = packer(100, min_fill=0.5)
    waiting.insert(1, 49)
    waiting.insert(2, 70)

    with caplog.at_level(logging.WARNING):
        assert waiting.take() is not None
    assert "filled to 0.49, under packing_min_fill_ratio 0.50" in caplog.text
    caplog.clear()
    waiting.take()
    assert caplog.text == ""


def test_a_poor_fill_is_warned_of_in_a_window_too(caplog: pytest.LogCaptureFixture) -> None:
    """Packs of 90 and of 20: the second is."""
    with caplog.at_level(logging.WARNING):
        packs = pack_window("abc", [40, 50, 20], 100, 0.5)

    assert [pack.items for pack in packs] == [("a", "b"), ("c",)]
    [said] = caplog.messages
    assert said.startswith("a pack is filled to 0.20, under packing_min_fill_ratio 0.50")


@pytest.mark.requirement("AB-26")
def test_fill_segments_and_buffer_are_logged() -> None:
    """The stable metric names of a pack."""
    waiting = packer(100)
    for index, length in enumerate([50, 60, 40]):
        waiting.insert(index, length)

    pack = waiting.take()

    assert pack is not None
    assert pack.items == (0, 2)
    assert waiting.metrics(pack) == {
        "packing/post_rollout_fill": 0.9,
        "packing/post_rollout_segments": 2.0,
        "packing/post_rollout_buffer": 1.0,
    }


@pytest.mark.requirement("AB-26")
def test_the_recorded_lengths_fill_packs_to_95_percent() -> None:
    """Mean fill of the packs of a run over the recorded segments, against FIFO."""
    lengths = json.loads(Path(LENGTHS).read_text())["lengths"]

    assert carried_fill(lengths, capacity=12_000, buffer=256) >= 0.95
    assert carried_fill(lengths, capacity=12_000, buffer=256) > fifo_fill(lengths, 12_000)
