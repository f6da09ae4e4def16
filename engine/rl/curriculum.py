"""Which questions a step trains on: epochs over seeded permutations of the training rows.

Stateless: a step's draw depends on seed and step alone, so a resumed run draws the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.data import Question


@dataclass(frozen=True)
class Curriculum:
    """Every row once an epoch; the last step of an epoch takes what is left, however few."""

    train: Sequence[Question]
    tasks_per_step: int
    seed: int
    """The run's seed; the draw uses seed + 1, so that it is not the split's shuffle again."""

    def draw(self, step: int) -> Sequence[Question]:
        """The rows of a step, each told which draw it is; steps count from 1."""
        steps_per_epoch = -(-len(self.train) // self.tasks_per_step)
        epoch, place = divmod(step - 1, steps_per_epoch)
        order = list(range(len(self.train)))
        random.Random(f"{self.seed + 1}:{epoch}").shuffle(order)
        start = place * self.tasks_per_step
        taken = order[start : start + self.tasks_per_step]
        return [replace(self.train[i], draw=step - 1) for i in taken]
