"""Silence (hang detection): how long an attempt has written no event, and when it is too long.

Phase by phase, learnt from the run: a stretch longer than any before it of its phase is no proof
that an engine hangs, but five times as long is worth saying, and fifteen times worth ending. What
counts are the seconds in which the supervisor itself was awake, by a clock that nobody corrects:
a machine that was suspended or stopped is not silent. Decides nothing: the supervisor asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from engine.contract.events import Event
from engine.contract.known import real

FACTOR = 5.0
"""Times the longest stretch of its phase that count as silence."""
PATIENCE = 3.0
"""Times the limit after which a silent attempt is ended."""
_AWAKE_S = 10.0
"""Most seconds that one look counts: between two looks further apart the supervisor slept."""
_STEPS_KNOWN = 3
"""Steps of a phase after which its stretches are known, though it was never left."""


class Silent(NamedTuple):
    """No event for longer than the limit."""

    seconds: float
    limit_s: float
    phase: str | None
    longest_s: float | None
    """The longest stretch of that phase before; None while nothing is learnt."""
    overdue: bool
    """It is to be ended."""

    def __str__(self) -> str:
        where = f" in the phase {self.phase}" if self.phase else ""
        before = "" if self.longest_s is None else f", where {self.longest_s:.0f} s was the longest"
        return f"no event for {_span(self.seconds)}{where}{before}"


@dataclass
class _Phase:
    longest_s: float = 0.0
    step: int | None = None
    steps: int = 0
    left: bool = False

    @property
    def learnt(self) -> bool:
        """It was seen from its beginning to its end, or makes steps of which two were seen."""
        return self.left or self.steps >= _STEPS_KNOWN


class Silence:
    """Of one attempt. Call `look` all the time, and `heard` for each event, in this order."""

    def __init__(
        self, first_s: float, least_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`first_s`: the limit while nothing is learnt; 0 = never silent. `least_s`: the smallest
        limit that is learnt.
        """
        self._first_s = first_s
        self._least_s = least_s
        self._clock = clock
        self._looked_at = clock()
        self._quiet_s = 0.0
        self._phase: str | None = None
        self._phases: dict[str | None, _Phase] = {None: _Phase()}
        self._saving_s = 0.0
        """The longest that a checkpoint took: it may come in any phase, and for the first time."""

    def learn(self, earlier: Iterable[Event]) -> None:
        """What earlier attempts of the run tell for sure: how long its checkpoints take."""
        for event in earlier:
            self._saving(event)

    def heard(self, event: Event) -> None:
        """An event came: the stretch before it belongs to the phase that was in force."""
        self._saving(event)
        known = self._phases[self._phase]
        known.longest_s = max(known.longest_s, self._quiet_s)
        self._quiet_s = 0.0
        phase = event.get("phase")
        if isinstance(phase, str) and phase != self._phase:
            known.left = True
            self._phase = phase
            known = self._phases.setdefault(phase, _Phase())
        step = event.get("step")
        if isinstance(step, int) and step != known.step:
            known.step, known.steps = step, known.steps + 1

    def look(self) -> None:
        """Count the time since the last look."""
        now = self._clock()
        self._quiet_s += min(max(0.0, now - self._looked_at), _AWAKE_S)
        self._looked_at = now

    def found(self) -> Silent | None:
        """Whether the attempt is silent, as of the last look."""
        if not self._first_s:
            return None
        known = self._phases[self._phase]
        longest = max(known.longest_s, self._saving_s)
        limit = FACTOR * longest
        limit = max(limit, self._least_s if known.learnt else self._first_s)
        if self._quiet_s < limit:
            return None
        overdue = self._quiet_s >= PATIENCE * limit
        told = longest if known.learnt else None
        return Silent(self._quiet_s, limit, self._phase, told, overdue)

    def _saving(self, event: Event) -> None:
        if event.get("type") == "checkpoint":
            self._saving_s = max(self._saving_s, real(event.get("seconds")) or 0.0)


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
