"""The rollout buffer: between who samples and who trains, and bounded on every side.

A group waits until it is trained on `max_reads` times or lies more than `max_staleness` trainer
versions behind. What went stale is evicted when the trainer advances, not when somebody asks for
it; a full buffer makes the sampler wait instead of growing; each group's fate is counted under the
version that sampled it. Thread-safe. Knows no sampler and no trainer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from engine.data.rows import Question
from engine.rewards.adapter import Verdict
from engine.sampling.base import Rollout

Fate = Literal["used", "wasted", "filtered", "failed"]
FATES: tuple[Fate, ...] = ("used", "wasted", "filtered", "failed")


@dataclass(frozen=True)
class JudgedGroup:
    """The k rollouts of one prompt with their verdicts and advantages."""

    task: Question
    rollouts: Sequence[Rollout]
    verdicts: Sequence[Verdict]
    advantages: Sequence[float]
    version: int
    """Trainer version of the weights that sampled it."""
    step: int
    """The step that sampled it."""

    @property
    def rewards(self) -> list[float | None]:
        """None where nothing was judged."""
        return [v.reward if v.judged else None for v in self.verdicts]

    def learnt(self) -> tuple[list[Rollout], list[float]]:
        """What a loss is made of: the rollouts that were judged, with their advantages."""
        judged = [(r, a) for r, v, a in self.rows() if v.judged]
        return [rollout for rollout, _ in judged], [advantage for _, advantage in judged]

    def rows(self) -> Iterator[tuple[Rollout, Verdict, float]]:
        """Each rollout with its verdict and its advantage."""
        return zip(self.rollouts, self.verdicts, self.advantages, strict=True)


@dataclass
class Entry:
    """A group in the buffer. `reads_left` counts down; at 0 the entry goes."""

    group: JudgedGroup
    reads_left: int
    read: bool = False


class BufferClosedError(Exception):
    """Nothing more will be put or popped: the run is over."""


@dataclass
class RolloutBuffer:
    """First in, first out, except that a group with reads left goes back to the tail."""

    capacity: int
    """Groups it holds at most."""
    max_staleness: int = 0
    """A group is stale when its version is under the trainer's version minus this."""
    max_reads: int = 1
    version: int = 0
    """The trainer's."""
    fates: dict[int, dict[Fate, int]] = field(default_factory=dict, init=False)
    """Groups by the version that sampled them; each group is counted once."""
    blocked_s: float = field(default=0.0, init=False)
    """How long samplers waited for room, all together."""
    _entries: deque[Entry] = field(default_factory=deque, init=False)
    _returned: deque[Question] = field(default_factory=deque, init=False)
    _closed: bool = field(default=False, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)

    def __len__(self) -> int:
        with self._changed:
            return len(self._entries)

    @property
    def entries(self) -> Sequence[Entry]:
        """What waits now, the next one first."""
        with self._changed:
            return tuple(self._entries)

    def put(self, group: JudgedGroup, timeout_s: float | None = None) -> bool:
        """Append a group; waits while the buffer is full. False when it was not taken.

        It is not taken when there was no room for `timeout_s` seconds (the caller still has it),
        or when it is stale by the time there is room (then it is wasted and its prompt returned).
        Raises BufferClosedError.
        """
        with self._changed:
            started = time.monotonic()
            room = self._changed.wait_for(self._has_room, timeout_s)
            self.blocked_s += time.monotonic() - started
            if self._closed:
                raise BufferClosedError
            if not room:
                return False
            if self._stale(group):
                self._waste(group)
                return False
            self._entries.append(Entry(group, self.max_reads))
            self._changed.notify_all()
            return True

    def pop(self, timeout_s: float | None = None) -> JudgedGroup | None:
        """The next group; waits for one. None after `timeout_s` seconds without.

        Raises BufferClosedError when the buffer is closed and empty.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._entries or self._closed, timeout_s)
            if not self._entries:
                if self._closed:
                    raise BufferClosedError
                return None
            entry = self._entries.popleft()
            entry.reads_left -= 1
            if not entry.read:
                entry.read = True
                self._count(entry.group.version, "used")
            if entry.reads_left > 0:
                self._entries.append(entry)
            self._changed.notify_all()
            return entry.group

    def discard(self, group: JudgedGroup, fate: Fate) -> None:
        """Count a group that is never put: filtered for its equal rewards, or failed."""
        with self._changed:
            self._count(group.version, fate)

    def advance(self, version: int) -> int:
        """The trainer has new weights: evict what is stale now; how many groups that were.

        A group that was never trained on is wasted and its prompt is returned.
        """
        with self._changed:
            self.version = version
            stale = [entry for entry in self._entries if self._stale(entry.group)]
            # The oldest prompt ends up in front of the others.
            for entry in reversed(stale):
                self._entries.remove(entry)
                if not entry.read:
                    self._waste(entry.group)
            if stale:
                self._changed.notify_all()
            return len(stale)

    def take_returned(self, count: int) -> list[Question]:
        """Prompts whose rollouts were wasted; they are to be sampled before any other."""
        with self._changed:
            return [self._returned.popleft() for _ in range(min(count, len(self._returned)))]

    def restore(self, entries: Sequence[Entry]) -> None:
        """Put back what a checkpoint held, reads and all; nothing is counted again."""
        with self._changed:
            self._entries = deque(entries)
            self._changed.notify_all()

    def close(self) -> None:
        """Wake everybody who waits; what is in the buffer can still be popped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def totals(self) -> Mapping[Fate, int]:
        """The fates over all versions."""
        with self._changed:
            counts = self.fates.values()
            return {fate: sum(count.get(fate, 0) for count in counts) for fate in FATES}

    def _has_room(self) -> bool:
        return self._closed or len(self._entries) < self.capacity

    def _stale(self, group: JudgedGroup) -> bool:
        return group.version < self.version - self.max_staleness

    def _waste(self, group: JudgedGroup) -> None:
        self._count(group.version, "wasted")
        self._returned.appendleft(group.task)

    def _count(self, version: int, fate: Fate) -> None:
        counts = self.fates.setdefault(version, {})
        counts[fate] = counts.get(fate, 0) + 1
