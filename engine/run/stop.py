"""Progress out, abort in: the two calls that cross a training loop from outside.

The hooks ride on a ContextVar, so any phase, however deep, can ask `check_abort()` without the
loop handing it down. Unset hooks cost one lookup. Knows no sentinel file and no event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from engine.contract.errors import NightlaneError

ProgressCallback = Callable[[Mapping[str, Any]], None]
"""Receives the fields of `engine.contract.events.Progress` that changed."""
AbortCheck = Callable[[], bool]
"""Cheap (a stat call); asked many times a second."""


class Aborted(NightlaneError):  # noqa: N818 - a request that was heard, not a fault
    """Somebody asked the run to stop; the last complete step is its resumable state."""

    retryable = True

    def __init__(self, message: str = "stopped on request") -> None:
        self.result: dict[str, Any] = {}
        """What the run had reached; filled in by whoever knows on the way out."""
        super().__init__(message)


class Declined(NightlaneError):  # noqa: N818 - a finding about the work, not a fault
    """The engine looked at the work and refused it, or gave it up; trying again changes nothing."""

    def __init__(self, cause: str, message: str) -> None:
        self.cause = cause
        """One word for lists: NO_HEADROOM, NO_SIGNAL, COLLAPSED."""
        self.result: dict[str, Any] = {}
        """What the run had reached; filled in by whoever knows on the way out."""
        super().__init__(message)


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


def stop_asked() -> bool:
    """Whether the ambient hooks ask for an abort."""
    should_abort = _AMBIENT.get(_SILENT).should_abort
    return should_abort is not None and should_abort()


def check_abort() -> None:
    """Raises Aborted when the ambient hooks ask for it.

    Called before each decode step, micro-batch, verifier batch, warm-up step and held-out batch.
    """
    if stop_asked():
        raise Aborted
