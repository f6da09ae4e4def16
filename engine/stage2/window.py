"""A window of samples: what it comes to, and which samples a step rolls out. Knows no trainer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine.contract.sources.records import Record
from engine.run.ranks import Ranks, share
from engine.stage2.rollout.base import call_seed, seed_base
from engine.stage2.rollout_step import RolledOut
from engine.stage2.schedule import Channel


@dataclass(frozen=True, slots=True)
class Learnt:
    """Gradients stand in the parameters; over all ranks, they and the values are the same."""

    values: dict[str, float]
    """Series of the step, `train/loss` among them."""
    records: tuple[Record, ...]
    """The samples this rank learnt from."""
    channel: Channel | None = None
    rolled_out: RolledOut | None = field(default=None)
    """This rank's own rollouts."""


class WindowLearner(Protocol):
    """How one trainer learns a window."""

    def __call__(self, window: Sequence[Record], step: int) -> Learnt:
        """The gradients of the window's loss. `step`: updates made so far."""
        ...


@dataclass(frozen=True)
class Drawn:
    """Which samples a step rolls out."""

    train: Sequence[Record]
    rollouts_per_step: int
    """Over all ranks."""
    seed: int
    ranks: Ranks

    def seed_base(self, step: int) -> int:
        """Of this rank's rollouts: a request's seed follows from its place among those of all."""
        shares = [
            share(self.rollouts_per_step, rank, self.ranks.size) for rank in range(self.ranks.rank)
        ]
        return call_seed(seed_base(self.seed, step), sum(shares))

    def __call__(self, window: Sequence[Record], step: int) -> tuple[Record, ...]:
        """This rank's: the window's, then its share of what is drawn by seed and step: the same
        samples over all ranks, however many there are.
        """
        size, rank = self.ranks.size, self.ranks.rank
        shares = [share(self.rollouts_per_step, one, size) for one in range(size)]
        missing = [max(0, wanted - len(window)) for wanted in shares]
        drawn = random.Random(f"{self.seed}:{step}").choices(self.train, k=sum(missing))
        first = sum(missing[:rank])
        return (*window[: shares[rank]], *drawn[first : first + missing[rank]])


class Packed(Protocol):
    """What a rank's sequences were packed into."""

    fills: list[float]
    segments: int


def pack_values(everybody: Sequence[Packed]) -> dict[str, float]:
    """Series of how sequences were packed; none without packing."""
    fills = [fill for one in everybody for fill in one.fills]
    if not fills:
        return {}
    return {
        "packing/post_rollout_fill": sum(fills) / len(fills),
        "packing/post_rollout_packs": float(len(fills)),
        "packing/post_rollout_segments": float(sum(one.segments for one in everybody)),
        "packing/post_rollout_buffer": 0.0,
    }
