"""Progress out, abort in: the two calls that cross a training loop from outside; and how one ends
that does not get to its end.

The hooks ride on a ContextVar, so any phase, however deep, can ask `check_abort()` without the
loop handing it down. Unset hooks cost one lookup. The same call tells whoever watches for silence
that the work goes on. Knows no sentinel file and no event.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from engine.contract.errors import NightlaneError

ProgressCallback = Callable[[Mapping[str, Any]], None]
"""Receives the fields of `engine.contract.events.Progress` that changed."""
AbortCheck = Callable[[], bool]
"""Cheap (a stat call); asked many times a second."""


class Aborted(NightlaneError):  # noqa: N818 - a request that was heard, not a fault
    """Somebody asked the run to stop; the last complete step is its resumable state."""

    retryable = True
    cause = "ABORTED"

    def __init__(self, message: str = "stopped on request") -> None:
        super().__init__(message)


class Declined(NightlaneError):  # noqa: N818 - a finding about the work, not a fault
    """The engine looked at the work and refused it, or gave it up; trying again changes nothing."""

    final = False
    """Whether the run is over, with a report on what it reached."""

    def __init__(self, cause: str, message: str) -> None:
        self.cause = cause
        super().__init__(message)


@dataclass(frozen=True)
class Diagnosis:
    """Why a run was given up, in the words of the report."""

    rule: str
    step: int
    value: float | None
    """What the step showed; None where it was no number."""
    limit: float | None
    """What it was held against."""
    text: str
    remedy: str
    samples: Sequence[Mapping[str, Any]] = ()
    """Completions that show it: [{prompt, completion, reward, reason}]."""

    @classmethod
    def not_a_number(cls, step: int, what: str, value: float, remedy: str) -> Diagnosis:
        """A loss or a gradient was NaN or infinite; no weight took it."""
        text = f"{what} is {value}; the weights are those of the step before"
        return cls("not a number", step, None if math.isnan(value) else value, None, text, remedy)

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)

    def line(self) -> str:
        """Rule, finding and remedy in one line."""
        return f"step {self.step}: {self.rule}: {self.text}; {self.remedy}"


class Collapsed(Declined):
    """The run was given up; the last whole step is a checkpoint."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self.diagnosis = diagnosis
        cause = "NO_SIGNAL" if diagnosis.rule == "all groups tie" else "COLLAPSED"
        super().__init__(cause, diagnosis.line())
        # A stuck step may go through when it is tried again.
        self.final = diagnosis.rule != "stuck step"


class Hooks(NamedTuple):
    """Both None means nobody listens."""

    progress_cb: ProgressCallback | None = None
    should_abort: AbortCheck | None = None


_AMBIENT: ContextVar[Hooks] = ContextVar("rl_hooks")
_SILENT = Hooks()


@contextmanager
def rl_hooks(
    progress_cb: ProgressCallback | None = None, should_abort: AbortCheck | None = None
) -> Iterator[None]:
    """Bind hooks for every loop that runs inside the block."""
    token = _AMBIENT.set(Hooks(progress_cb, should_abort))
    try:
        yield
    finally:
        _AMBIENT.reset(token)


def current_rl_hooks() -> Hooks:
    """The hooks of the surrounding `rl_hooks` block; (None, None) outside of one."""
    return _AMBIENT.get(_SILENT)


_STILL_WORKS: ContextVar[Callable[[], None]] = ContextVar("still_works", default=lambda: None)


@contextmanager
def telling_of_life(still_works: Callable[[], None]) -> Iterator[None]:
    """Inside, every `check_abort` and `sign_of_life` calls it: the work goes on."""
    token = _STILL_WORKS.set(still_works)
    try:
        yield
    finally:
        _STILL_WORKS.reset(token)


def sign_of_life() -> None:
    """Say that the work goes on, where no request to stop can be heard: between two files of a
    checkpoint, after a health probe that was answered.
    """
    _STILL_WORKS.get()()


def stop_asked() -> bool:
    """Whether the ambient hooks ask for an abort."""
    should_abort = _AMBIENT.get(_SILENT).should_abort
    return should_abort is not None and should_abort()


class _Deadline(NamedTuple):
    at: float
    """On the monotonic clock."""
    diagnose: Callable[[], Diagnosis]


_DEADLINE: ContextVar[_Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def stuck_after(seconds: float | None, diagnose: Callable[[], Diagnosis]) -> Iterator[None]:
    """Inside, `check_abort` gives the run up once so many seconds are over; None: never."""
    token = _DEADLINE.set(
        None if seconds is None else _Deadline(time.monotonic() + seconds, diagnose)
    )
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def check_abort(*, working: bool = True) -> None:
    """Raises Aborted when the ambient hooks ask for it, Collapsed beyond `stuck_after`.

    Called before each decode step, micro-batch, verifier batch, warm-up step and held-out batch.
    `working`: to come by here is a sign of life; false where the caller only waits for others.
    """
    if working:
        sign_of_life()
    deadline = _DEADLINE.get()
    if deadline is not None and time.monotonic() > deadline.at:
        raise Collapsed(deadline.diagnose())
    if stop_asked():
        raise Aborted
