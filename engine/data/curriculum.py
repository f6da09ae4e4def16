"""Which questions a step trains on: epochs over seeded permutations of the training rows.

Stateless: a draw depends on seed and count of rows alone, so a resumed run draws the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.data.rows import Question


@dataclass(frozen=True)
class Curriculum:
    """Every row once an epoch, however many a step takes."""

    train: Sequence[Question]
    seed: int
    """The run's seed; the draw uses seed + 1, so that it is not the split's shuffle again."""

    def draw(self, drawn: int, count: int, *, draw: int) -> Sequence[Question]:
        """The next `count` rows behind the first `drawn`; at an epoch's end what is left, however
        few. Each row is told that this is draw number `draw`.
        """
        epoch, start = divmod(drawn, len(self.train))
        order = list(range(len(self.train)))
        random.Random(f"{self.seed + 1}:{epoch}").shuffle(order)
        return [replace(self.train[i], draw=draw) for i in order[start : start + count]]

    def drawn_by(self, steps: int, tasks_per_step: int) -> int:
        """Rows drawn by so many steps that all took `tasks_per_step`, or what was left.

        >>> Curriculum(train=[Question(str(i), "", "") for i in range(8)], seed=0).drawn_by(4, 3)
        11
        """
        epochs, place = divmod(steps, -(-len(self.train) // tasks_per_step))
        return epochs * len(self.train) + place * tasks_per_step
