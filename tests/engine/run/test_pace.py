"""A long phase says how far it is: n of N, and the time left once something is done."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from engine.run import pace
from engine.run.pace import advance, busy, counted, counting, current_part
from engine.run.stop import telling_of_life


@pytest.fixture
def told() -> list[dict[str, Any]]:
    """What each sign of life said."""
    return []


@pytest.fixture
def say(told: list[dict[str, Any]]) -> Any:
    def say() -> None:
        part = current_part()
        assert part is not None
        told.append(part.as_dict())

    return say


def test_a_sign_of_life_says_how_many_are_done_of_how_many(
    told: list[dict[str, Any]], say: Any
) -> None:
    with telling_of_life(say), counted("decode", 6):
        advance(2)
        advance(4)

    assert [(one["doing"], one["done"], one["of"]) for one in told] == [
        ("decode", 2, 6),
        ("decode", 6, 6),
    ]
    assert told[0]["left_s"] >= 0
    assert told[1]["left_s"] == 0
    assert current_part() is None


def test_a_phase_within_another_is_named_with_it(told: list[dict[str, Any]], say: Any) -> None:
    with telling_of_life(say), counted("evaluate", 2):
        for _ in counting("decode", "ab"):
            pass

    assert [one["doing"] for one in told] == ["evaluate: decode"] * 2


def test_where_nobody_knows_how_many_there_are_no_time_is_promised(
    told: list[dict[str, Any]], say: Any
) -> None:
    with telling_of_life(say), counted("learn", None):
        advance()

    assert told == [{"doing": "learn", "done": 1, "of": None, "left_s": None}]


def test_a_library_call_gives_signs_of_life_while_the_process_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And none while it hangs, so that a hang is not taken for work."""
    monkeypatch.setattr(pace, "_LOOK_S", 0.01)
    heard, used, asleep = threading.Event(), [0.0], [False]

    def compute() -> float:
        used[0] += 0 if asleep[0] else 1
        return used[0]

    monkeypatch.setattr(pace, "_used", compute)
    with telling_of_life(heard.set), busy("load the model"):
        assert heard.wait(20)
        asleep[0] = True
    heard.clear()
    with telling_of_life(heard.set), busy("load the model"):
        assert not heard.wait(0.1)
