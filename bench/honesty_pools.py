"""The training rollouts of a simulated run, and a test of their rise that the product does not use.

A prompt has a difficulty of its own, comes back every epoch, and its rollouts share it. The test is
what a reader with the journal would do: the last third of the steps against the first, every
rollout counted, clustered by prompt, two-sided at 5 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from engine.verdict.trend import Tally

Floats = npt.NDArray[np.float64]
Shape = Literal["linear", "late jump", "early rise", "rise and fall"]
Z = 1.959963984540054


@dataclass(frozen=True)
class PoolShape:
    """How a run samples, and how its pool rises where it does."""

    steps: int = 120
    prompts: int = 32
    """A step."""
    rollouts: int = 8
    """A prompt."""
    different: int | None = None
    """Prompts of the corpus; None: each comes once."""
    alike: float = 0.45
    """Correlation of the rollouts of one prompt at the start."""
    shape: Shape = "linear"

    @property
    def size(self) -> str:
        """Steps by rollouts a step."""
        return f"{self.steps} x {self.prompts * self.rollouts}"


def simulate_pool(
    pool: PoolShape, rise: float, draw: np.random.Generator
) -> Mapping[int, Sequence[Tally]]:
    """By step, what each prompt's rollouts came to."""
    needed = pool.steps * pool.prompts
    different = pool.different or needed
    epochs = [draw.permutation(different) for _ in range(-(-needed // different))]
    prompts_of = np.concatenate(epochs)[:needed].reshape(pool.steps, pool.prompts)
    spread = 1 / pool.alike - 1  # a beta distribution with this sum of its two numbers
    difficulty = draw.beta(0.55 * spread, 0.45 * spread, different).clip(1e-4, 1 - 1e-4)
    logits = np.log(difficulty / (1 - difficulty))
    shifts = _shifts(logits, rise * _course(pool.shape, pool.steps))
    rates = _share(logits[prompts_of] + shifts[:, None])
    solved = draw.binomial(pool.rollouts, rates)
    return {
        step + 1: [
            Tally(int(prompt), int(solved), pool.rollouts)
            for prompt, solved in zip(prompts_of[step], solved[step], strict=True)
        ]
        for step in range(pool.steps)
    }


def rose(pool: Mapping[int, Sequence[Tally]]) -> bool:
    """Whether the pool's own gain is significant."""
    steps = np.array([step for step in pool for _ in pool[step]])
    prompt, solved, judged = (
        np.array([getattr(one, name) for step in pool for one in pool[step]], dtype=np.float64)
        for name in ("prompt", "solved", "judged")
    )
    third = max(1, len(pool) // 3)
    late, early = steps > steps.max() - third, steps <= third
    rates = [solved[part].sum() / judged[part].sum() for part in (early, late)]
    scores = np.zeros(int(prompt.max()) + 1)
    for sign, part, rate in ((-1, early, rates[0]), (1, late, rates[1])):
        left = (solved[part] - rate * judged[part]) / judged[part].sum()
        np.add.at(scores, prompt[part].astype(np.int64), sign * left)
    error = float(np.sqrt((scores**2).sum()))
    return bool(rates[1] - rates[0] > Z * error)


def _course(shape: Shape, steps: int) -> Floats:
    """By step, the share of the rise that is reached."""
    u = (np.arange(steps) + 0.5) / steps
    courses: Mapping[Shape, Floats] = {
        "linear": u,
        "late jump": np.where(u > 0.72, 1.0, 0.0),
        "early rise": 1 - np.exp(-8 * u),
        "rise and fall": np.where(u < 0.75, u / 0.75, 2.5 - 2 * u),
    }
    return courses[shape]


def _shifts(logits: Floats, rises: Floats) -> Floats:
    """By step, what must be added to every prompt's logit for the mean rate to rise so much."""
    grid = np.linspace(-0.5, 8, 50)
    means = np.array([_share(logits + one).mean() for one in grid])
    shifts: Floats = np.interp(_share(logits).mean() + rises, means, grid)
    return shifts


def _share(logits: Floats) -> Floats:
    shares: Floats = 1 / (1 + np.exp(-logits))
    return shares
