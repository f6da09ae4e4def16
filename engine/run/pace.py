"""How far a long phase is: n of N, for the next sign of life of the run.

    with counted("decode", 64):
        … advance(2)                 two more are done, and the work goes on

Writes nothing: `engine.run.session.Attempt` puts it into the progress event that is due.
Torch-free.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from engine.run.stop import sign_of_life

Item = TypeVar("Item")
_LOOK_S = 5.0
_BUSY = 0.05
"""Share of a processor from which a process counts as working."""


class Part:
    """A phase within a step, an evaluation or a bring-up."""

    def __init__(self, doing: str, of: int | None) -> None:
        self.doing, self.of, self.done = doing, of, 0
        self._began = time.monotonic()

    def as_dict(self) -> dict[str, Any]:
        """As a progress event tells it; `left_s` is null until something is done."""
        left = None
        if self.done and self.of is not None:
            each = (time.monotonic() - self._began) / self.done
            left = round(each * (self.of - self.done), 1)
        return {"doing": self.doing, "done": self.done, "of": self.of, "left_s": left}


_PART: ContextVar[Part | None] = ContextVar("part", default=None)


def current_part() -> Part | None:
    """The innermost phase that is counted."""
    return _PART.get()


@contextmanager
def counted(doing: str, of: int | None) -> Iterator[None]:
    """`of`: how many there are; None where nobody knows. Within another phase both are named."""
    outer = _PART.get()
    token = _PART.set(Part(doing if outer is None else f"{outer.doing}: {doing}", of))
    try:
        yield
    finally:
        _PART.reset(token)


def advance(count: int = 1) -> None:
    """So many more are done, where they are counted; in any case a sign of life."""
    part = _PART.get()
    if part is not None:
        part.done += count
    sign_of_life()


def counting(doing: str, items: Sequence[Item]) -> Iterator[Item]:
    """The items, counted as they are asked for; to be gone through to the end."""
    with counted(doing, len(items)):
        for item in items:
            yield item
            advance()


@contextmanager
def busy(doing: str) -> Iterator[None]:
    """A call that gives no sign of its own, as a library's that loads a model: as long as this
    process computes or reads, it works.
    """
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_S):
            if _used() > used[0] + _BUSY * _LOOK_S:
                sign_of_life()
            used[0] = _used()

    with counted(doing, None):
        used = [_used()]
        thread = threading.Thread(target=copy_context().run, args=(look,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _used() -> float:
    """Seconds of the processor so far; page faults of a mapped file are among them."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
