"""The watchdog's rule: from readings of free memory to warn, stop and kill.

    warn    under the warn level
    stop    under the floor for `HOLD_S`: a checkpoint is still possible
    kill    under the hard floor, or falling so fast that it is reached within `HORIZON_S`

Looks at what the machine has left, never at one process alone: on unified memory the accelerator
takes from the same pool. Standard library alone; knows no process, no file and no clock.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # the sentry runs without it
    from worker.settings import WorkerSettings

HOLD_S = 2.0
"""A spike under the floor that is shorter is no reason to stop."""
HORIZON_S = 1.0
"""How far ahead a fall is followed."""
AT_ONCE_S = 0.05
"""With less time left than this, a fall is not measured a second time."""
WINDOW_S = 0.25
"""A fall is measured over this long, so that one large allocation is not taken for one."""

NEAR_S, FAR_S = 0.05, 0.5
"""Most time between two looks, under the warn level and above it."""
SHORTEST_S = 0.005

FIRST_GUESS_GB_S = 10.0
"""The fastest fall to expect of a box on which none was seen yet."""


SMALL_BOX_GB = 64.0
"""Under this total the limits shrink with the box: 4 GB are nothing there and a lot on 8 GB."""
_SMALL_FLOOR, _SMALL_WARN = 0.08, 0.16


class Limits(NamedTuple):
    """In GB of 10⁹ bytes, descending."""

    warn_gb: float
    floor_gb: float
    hard_gb: float


class Action(StrEnum):
    """What has to be done."""

    NONE = "none"
    WARN = "warn"
    STOP = "stop"
    KILL = "kill"


class Rule(StrEnum):
    """Why."""

    ABOVE = "above"
    UNDER_WARN = "under_warn"
    FLOOR_HELD = "floor_held"
    HARD_FLOOR = "hard_floor"
    PROJECTED = "projected"


class Decision(NamedTuple):
    """What one look says."""

    action: Action
    rule: Rule
    fall_gb_s: float
    """How fast memory goes; 0 when it does not."""


_NOTHING = Decision(Action.NONE, Rule.ABOVE, 0.0)


class Watchdog:
    """Call `look` with each reading; `next_look_s` says when to come back."""

    def __init__(self, limits: Limits, fastest_gb_s: float = FIRST_GUESS_GB_S) -> None:
        self.limits = limits
        self.fastest_gb_s = fastest_gb_s
        """The fastest fall seen on this box, in GB/s; it only grows."""
        self._samples: list[tuple[float, float]] = []
        self._breached_at: float | None = None
        self._suspect: tuple[float, float] | None = None

    def look(self, now: float, free_gb: float | None) -> Decision:
        """`now` on any steady clock, in seconds. A missing reading decides nothing."""
        if free_gb is None:
            self._breached_at = self._suspect = None
            return _NOTHING
        fall = self._fall(now, free_gb)
        self._keep(now, free_gb)
        if free_gb < self.limits.hard_gb:
            return Decision(Action.KILL, Rule.HARD_FLOOR, fall)
        if self._falls_through(now, free_gb, fall):
            return Decision(Action.KILL, Rule.PROJECTED, fall)
        if self._held_under_floor(now, free_gb):
            return Decision(Action.STOP, Rule.FLOOR_HELD, fall)
        if free_gb < self.limits.warn_gb:
            return Decision(Action.WARN, Rule.UNDER_WARN, fall)
        return Decision(Action.NONE, Rule.ABOVE, fall)

    def next_look_s(self, free_gb: float | None) -> float:
        """Before the fastest fall of this box could take half the way to the hard floor."""
        if free_gb is None:
            return NEAR_S
        longest = NEAR_S if free_gb < self.limits.warn_gb or self._suspect else FAR_S
        half_way = 0.5 * (free_gb - self.limits.hard_gb) / self.fastest_gb_s
        return max(SHORTEST_S, min(longest, half_way))

    def _keep(self, now: float, free_gb: float) -> None:
        """The samples of the window and the last one before it."""
        self._samples.append((now, free_gb))
        while len(self._samples) > 1 and self._samples[1][0] <= now - WINDOW_S:
            del self._samples[0]

    def _fall(self, now: float, free_gb: float) -> float:
        """GB/s since the highest reading of the window, or the last one where that is older.

        Never over less than the window: a moment after the last look, one allocation would pass
        for a fall that leaves no time.
        """
        if not self._samples:
            return 0.0
        then, before = max(self._samples, key=lambda sample: sample[1])
        fall = max(0.0, before - free_gb) / max(now - then, WINDOW_S)
        self.fastest_gb_s = max(self.fastest_gb_s, fall)
        return fall

    def _falls_through(self, now: float, free_gb: float, fall: float) -> bool:
        """Whether the hard floor is reached within the horizon; seen twice while time allows.

        One large allocation looks like a fall once, and like nothing at the next look.
        """
        left = free_gb - self.limits.hard_gb
        if fall * HORIZON_S < left or fall == 0:
            self._suspect = None
            return False
        if left < fall * AT_ONCE_S:
            return True
        if self._suspect is None:
            self._suspect = now, free_gb
            return False
        then, before = self._suspect
        self._suspect = now, free_gb
        return (before - free_gb) * HORIZON_S >= left * max(now - then, SHORTEST_S)

    def _held_under_floor(self, now: float, free_gb: float) -> bool:
        if free_gb >= self.limits.floor_gb:
            self._breached_at = None
            return False
        if self._breached_at is None:
            self._breached_at = now
        return now - self._breached_at >= HOLD_S


def limits(settings: WorkerSettings, total: float) -> Limits:
    """The limits in force on a box with `total` GB; the hard floor is half the floor.

    >>> from worker.settings import WorkerSettings
    >>> limits(WorkerSettings(), total=25.0)
    Limits(warn_gb=4.0, floor_gb=2.0, hard_gb=1.0)
    """
    warn, floor = settings.oom_warn_gb, settings.oom_floor_gb
    if total < SMALL_BOX_GB:
        warn, floor = min(warn, _SMALL_WARN * total), min(floor, _SMALL_FLOOR * total)
    return Limits(warn, floor, floor / 2)
