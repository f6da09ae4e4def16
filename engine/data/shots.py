"""Worked examples that are drawn anew for every row of a bench, as lm-evaluation-harness draws
them: from one stream over all of its rows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from engine.contract.asked import asked
from engine.contract.errors import RLLoopError
from engine.data.rows import Question

FEWSHOT_SEED = 1234
"""Of the harness, where nobody says another."""


def never_asked(rows: Sequence[Question], pool: Sequence[Question]) -> list[Question]:
    """The rows of a pool that ask nothing that one of the bench's `rows` asks.

    A task draws from these alone, whoever runs it: a test row is never a worked example.
    """
    asked_there = {asked(row.prompt) for row in rows}
    return [row for row in pool if asked(row.prompt) not in asked_there]


def shots_for(
    rows: Sequence[Question], pool: Sequence[Question], n: int, seed: int = FEWSHOT_SEED
) -> list[Sequence[Question]]:
    """For each row `n` of the pool, never one that asks what the row asks.

    `rows` are all rows of the bench in their order, whatever part of them is scored: a subset or a
    resumed evaluation replays the stream and takes its own.
    Raises RLLoopError for a pool with too few rows.
    """
    if n == 0:
        return [() for _ in rows]
    if len(pool) < n:
        raise _too_few(n, len(pool))
    stream = random.Random(seed)
    keys = [asked(question.prompt) for question in pool]
    return [_drawn(stream, pool, keys, asked(row.prompt), n) for row in rows]


def _drawn(
    stream: random.Random,
    pool: Sequence[Question],
    keys: Sequence[str],
    same: str,
    n: int,
) -> Sequence[Question]:
    places = stream.sample(range(len(pool)), n)
    if any(keys[place] == same for place in places):
        others = [place for place, key in enumerate(keys) if key != same]
        if len(others) < n:
            raise _too_few(n, len(others))
        places = stream.sample(others, n)
    return [pool[place] for place in places]


def _too_few(n: int, rows: int) -> RLLoopError:
    problem = f"cannot be drawn from {rows} rows that ask something else"
    return RLLoopError.of("shots", n, problem, f"use {rows} at most, or name a larger source")
