"""Which prompts a step draws in place of those whose groups taught nothing (DAPO, 2503.14476)."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from engine.data.rows import Question


def more_prompts(
    rows: Sequence[Question],
    *,
    count: int,
    without: Collection[str],
    draw: int,
    round_: int,
    seed: int,
    sources: Mapping[str, int],
) -> list[Question]:
    """At most `count` training rows whose ids are not in `without`, of each source at most as many
    as `sources` says: a prompt is replaced by one of its own kind.

    Depends on its arguments alone, so a resumed run draws the same. `draw` is the curriculum's
    count, which names the random numbers of the completions.
    """
    found: list[Question] = []
    for source, wanted in sources.items():
        rest = [row for row in rows if row.source == source and row.id not in without]
        named = f":{source}" if source else ""
        random_ = random.Random(f"{seed + 1}:refill{named}:{draw}:{round_}")
        found += random_.sample(rest, min(wanted, count - len(found), len(rest)))
    return [question.but(draw=draw) for question in found]
