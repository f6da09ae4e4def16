"""Packing: segments of unequal length into packs of one capacity, the oldest always first.

A pack holds the oldest waiting segment and the subset of the others that fills it best (subset
sum, solved exactly over bit sets), so it is never emptier than taking them in order until one does
not fit. A segment is never split. `Packer` carries leftovers to the next pack (scope `micro`);
`pack_window` packs a whole window with nothing left (scope `window`). Knows no token.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from engine.contract.errors import NightlaneError

log = logging.getLogger(__name__)

Item = TypeVar("Item")


class PackingError(NightlaneError):
    """A segment that no pack can take: which length, which limit, what to do."""


@dataclass(frozen=True, slots=True)
class Pack(Generic[Item]):
    """Segments that share one forward pass, in order of arrival."""

    items: tuple[Item, ...]
    length: int
    capacity: int

    @property
    def fill(self) -> float:
        """Share of the capacity that is used, in (0, 1]."""
        return self.length / self.capacity


class Packer(Generic[Item]):
    """A buffer of waiting segments. `buffer` bounds it; a pack under `min_fill` is warned of."""

    def __init__(self, *, capacity: int, buffer: int, min_fill: float) -> None:
        self.capacity, self.buffer, self.min_fill = capacity, buffer, min_fill
        self._waiting: list[tuple[int, Item]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def could_fill_one(self) -> bool:
        """Whether as much waits as a pack takes."""
        return sum(length for length, _ in self._waiting) >= self.capacity

    def insert(self, item: Item, length: int) -> None:
        """Take a segment in. Raises PackingError when it is too long, or the buffer full."""
        _refuse_oversize(length, self.capacity)
        if len(self._waiting) >= self.buffer:
            raise PackingError(
                f"{len(self._waiting)} segments wait already; take a pack first, or raise "
                "training.packing_buffer"
            )
        self._waiting.append((length, item))

    def take(self) -> Pack[Item] | None:
        """The next pack, None when nothing waits."""
        if not self._waiting:
            return None
        chosen = fullest([length for length, _ in self._waiting], self.capacity)
        pack = _pack(self._waiting, chosen, self.capacity)
        kept = set(chosen)
        self._waiting = [entry for i, entry in enumerate(self._waiting) if i not in kept]
        _warn_of_air(pack, self.min_fill, len(self._waiting))
        return pack

    def metrics(self, pack: Pack[Item]) -> dict[str, float]:
        """What a step logs of a pack just taken."""
        return {
            "packing/post_rollout_fill": pack.fill,
            "packing/post_rollout_segments": float(len(pack.items)),
            "packing/post_rollout_buffer": float(len(self)),
        }


def pack_window(
    items: Sequence[Item], lengths: Sequence[int], capacity: int, min_fill: float = 0.0
) -> tuple[Pack[Item], ...]:
    """Every segment of a window in as few packs as we find; never more than in order of arrival.

    Packs stand in the order of their oldest segment; one under `min_fill` is warned of. Raises
    PackingError for a segment too long.
    """
    for length in lengths:
        _refuse_oversize(length, capacity)
    fewest = -(-sum(lengths) // capacity)
    best = _in_order(lengths, capacity)
    for plan in (_longest_first, _fullest_first):
        if len(best) > fewest:
            best = min(best, plan(lengths, capacity), key=len)
    waiting = list(zip(lengths, items, strict=True))
    packs = tuple(_pack(waiting, chosen, capacity) for chosen in sorted(best))
    for pack in packs:
        _warn_of_air(pack, min_fill, 0)
    return packs


def fullest(lengths: Sequence[int], capacity: int) -> list[int]:
    """Indices of the oldest and of the others that fill up best; ascending.

    Of equally full choices, the one that leaves the newest segments waiting.

    >>> fullest([5, 4, 3, 2], 10)
    [0, 2, 3]
    """
    room = capacity - lengths[0]
    within = (1 << (room + 1)) - 1
    reach = [1]  # bit s of reach[i]: some of the first i others add up to s
    for length in lengths[1:]:
        reach.append((reach[-1] | reach[-1] << length) & within)
    left = reach[-1].bit_length() - 1
    chosen = []
    for i in range(len(lengths) - 1, 0, -1):
        if not reach[i - 1] >> left & 1:
            chosen.append(i)
            left -= lengths[i]
    return [0, *reversed(chosen)]


def _refuse_oversize(length: int, capacity: int) -> None:
    if not 0 < length <= capacity:
        raise PackingError(
            f"a segment of {length} tokens does not fit into a pack of {capacity}; "
            "raise global_max_length, or lower max_new_tokens"
        )


def _warn_of_air(pack: Pack[Item], min_fill: float, waiting: int) -> None:
    if pack.fill < min_fill:
        log.warning(
            "a pack is filled to %.2f, under packing_min_fill_ratio %.2f; %d segments wait",
            pack.fill,
            min_fill,
            waiting,
        )


def _pack(waiting: Sequence[tuple[int, Item]], chosen: Sequence[int], capacity: int) -> Pack[Item]:
    items = tuple(waiting[i][1] for i in chosen)
    return Pack(items, sum(waiting[i][0] for i in chosen), capacity)


def _fullest_first(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Pack after pack as `Packer` takes them."""
    left = list(range(len(lengths)))
    plan = []
    while left:
        chosen = [left[i] for i in fullest([lengths[i] for i in left], capacity)]
        plan.append(chosen)
        left = [i for i in left if i not in set(chosen)]
    return plan


def _longest_first(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """First fit decreasing: at most 11/9 of the best number of packs, and 6/9 (Dósa 2007)."""
    plan: list[list[int]] = []
    room: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        slot = next((s for s, free in enumerate(room) if free >= lengths[i]), len(plan))
        if slot == len(plan):
            plan.append([])
            room.append(capacity)
        plan[slot].append(i)
        room[slot] -= lengths[i]
    return [sorted(chosen) for chosen in plan]


def _in_order(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """First in, first out: each pack closes at the first segment that does not fit."""
    plan: list[list[int]] = []
    used = capacity
    for i, length in enumerate(lengths):
        if used + length > capacity:
            plan.append([])
            used = 0
        plan[-1].append(i)
        used += length
    return plan
