"""Pictures are read by threads ahead of their use, and no more of them than a bound allows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
from PIL import Image

from engine.contract.sources.ground_truth import GroundTruthError
from engine.contract.sources.records import Record
from engine.run.stop import Aborted, rl_hooks
from engine.stage2.rollout.prompts import PromptReader
from engine.stage2.rollout.reading import AHEAD_BYTES, Reading, ahead, begin
from tests.deadline import eventually


class Item(NamedTuple):
    """Something to read."""

    reading: Reading[int]


@pytest.fixture
def read() -> list[int]:
    """What was read, in its order."""
    return []


@pytest.fixture
def items(read: list[int]) -> Callable[..., list[Item]]:
    def make(*sizes: int) -> list[Item]:
        def reading(number: int, size: int) -> Reading[int]:
            def call() -> int:
                read.append(number)
                return number

            return Reading(call, size)

        return [Item(reading(number, size)) for number, size in enumerate(sizes)]

    return make


def test_the_next_part_is_read_while_the_one_before_it_is_worked_on(
    items: Callable[..., list[Item]], read: list[int]
) -> None:
    parts = ahead(items(*[1] * 5), 2)

    first = next(parts)
    eventually(lambda: sorted(read) == [0, 1, 2, 3], "two parts are read")

    assert [one.reading.result() for one in first] == [0, 1]
    assert [[one.reading.result() for one in part] for part in parts] == [[2, 3], [4]]
    assert sorted(read) == [0, 1, 2, 3, 4]


def test_what_is_more_than_the_bound_is_read_when_it_is_asked_for(
    items: Callable[..., list[Item]], read: list[int]
) -> None:
    half, small, large, other = items(AHEAD_BYTES // 2, 1, AHEAD_BYTES, 1)

    begin([half, small, large, other])
    eventually(lambda: sorted(read) == [0, 1], "what fits is read")

    assert large.reading.result() == 2
    assert sorted(read) == [0, 1, 2]


def test_a_stop_is_heard_while_a_picture_is_waited_for() -> None:
    let_go = threading.Event()
    slow = Reading(let_go.wait, 1)
    try:
        with rl_hooks(should_abort=lambda: True), pytest.raises(Aborted):
            slow.result()
    finally:
        let_go.set()


def test_a_prompt_holds_no_pictures_until_somebody_asks(
    records: list[Record], reader: PromptReader
) -> None:
    """Its ids come of the file's head; a file that is broken further on is named when read."""
    record = records[0]
    whole = record.images[0].read_bytes()
    broken = record.images[0].with_name("broken.png")
    broken.write_bytes(whole[: len(whole) // 2])
    sound = reader(record)

    prompt = reader(replace(record, images=(broken,)))

    assert prompt.ids == sound.ids
    assert sound.reading.size == sound.pictures.pixel_values.nbytes
    with pytest.raises(GroundTruthError, match=r"broken\.png cannot be read as a picture"):
        _ = prompt.pictures
    with Image.open(record.images[0]) as image:
        assert image.size == record.size
