"""Which prompts a step draws in place of those whose groups taught nothing (DAPO, 2503.14476)."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import replace

from engine.data.rows import Question


def more_prompts(
    train: Sequence[Question],
    *,
    count: int,
    without: Collection[str],
    draw: int,
    round_: int,
    seed: int,
) -> list[Question]:
    """At most `count` training rows whose ids are not in `without`.

    Depends on its arguments alone, so a resumed run draws the same. `draw` is the curriculum's
    count, which names the random numbers of the completions.
    """
    rest = [question for question in train if question.id not in without]
    chosen = random.Random(f"{seed + 1}:refill:{draw}:{round_}").sample(rest, min(count, len(rest)))
    return [replace(question, draw=draw) for question in chosen]
