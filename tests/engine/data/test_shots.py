"""Worked examples drawn for the rows of a bench."""

from __future__ import annotations

import random

import pytest

from engine.contract.errors import RLLoopError
from engine.data.rows import Question
from engine.data.shots import FEWSHOT_SEED, shots_for

POOL = [Question(f"p{i}", f"How many are {i} and one?", str(i + 1)) for i in range(40)]
ROWS = [Question(f"r{i}", f"How many are {i} and two?", str(i + 2)) for i in range(12)]


def test_they_are_those_that_the_harness_draws() -> None:
    """Its sampler: `Random(1234).sample(train_docs, n)`, once a row, in the order of the rows."""
    stream = random.Random(1234)

    assert shots_for(ROWS, POOL, 5) == [stream.sample(POOL, 5) for _ in ROWS]


def test_a_row_is_never_its_own_example_and_the_rows_before_it_keep_theirs() -> None:
    twin = Question("twin", "HOW many are  3 and one", "4")
    plain = shots_for(ROWS, POOL[:6], 5)

    found = shots_for([*ROWS[:4], twin, *ROWS[4:]], POOL[:6], 5)

    assert found[:4] == plain[:4]
    assert sorted(shot.id for shot in found[4]) == ["p0", "p1", "p2", "p4", "p5"]


def test_a_subset_takes_its_own_from_the_stream_of_all() -> None:
    """So a limit, a resumed evaluation and the whole bench ask the same prompts."""
    assert shots_for(ROWS[:5], POOL, 3) == shots_for(ROWS, POOL, 3)[:5]
    assert shots_for(ROWS, POOL, 3) != shots_for(ROWS, POOL, 3, seed=FEWSHOT_SEED + 1)


def test_none_asks_nothing_of_the_pool() -> None:
    assert shots_for(ROWS, [], 0) == [()] * len(ROWS)


@pytest.mark.parametrize("pool", [POOL[:2], [*POOL[:2], Question("t", ROWS[0].prompt, "2")]])
def test_a_pool_that_is_too_small_is_named(pool: list[Question]) -> None:
    with pytest.raises(RLLoopError, match="cannot be drawn from 2 rows that ask something else"):
        shots_for(ROWS, pool, 3)
