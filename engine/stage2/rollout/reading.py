"""Pictures that are read when they are needed, or before that by a few threads.

Decoding and patching a large picture takes seconds, in code that lets other threads run. Knows no
model and no record.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from functools import cache
from typing import Any, Generic, Protocol, TypeVar

from engine.run.stop import check_abort, sign_of_life

Read = TypeVar("Read")
AHEAD_BYTES = 2**30
"""Most that is read before it is asked for, beside what is in use."""
THREADS = min(8, len(os.sched_getaffinity(0)))
_POLL_S = 0.5


class Reading(Generic[Read]):
    """`call` is made once, by a thread: after `begin`, or when the result is asked for."""

    def __init__(self, call: Callable[[], Read], size: int) -> None:
        """`size`: bytes of what it reads."""
        self.size = size
        self._call = call
        self._found: Future[Read] | None = None

    def begin(self) -> Future[Read]:
        """Have it read."""
        if self._found is None:
            self._found = _threads().submit(self._call)
        return self._found

    def result(self) -> Read:
        """Waits for it. Raises what reading raised, and Aborted."""
        found = self.begin()
        while wait_for([found], timeout=_POLL_S).not_done:
            check_abort(working=False)
        sign_of_life()
        return found.result()


class Reads(Protocol):
    """What has something to read."""

    @property
    def reading(self) -> Reading[Any]: ...


Item = TypeVar("Item", bound=Reads)


def begin(items: Iterable[Reads]) -> None:
    """Have them read in their order, as far as `AHEAD_BYTES` allow."""
    left = AHEAD_BYTES
    for item in items:
        left -= item.reading.size
        if left < 0:
            return
        item.reading.begin()


def ahead(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Parts of `size` items; while one is worked on, the next is read. Each is taken once."""
    now: Sequence[Item] = items[:size]
    begin(now)
    for start in range(size, len(items) + size, size):
        coming = items[start : start + size]
        begin(coming)
        yield now
        now = coming


@cache
def _threads() -> ThreadPoolExecutor:
    """One pool for the process."""
    return ThreadPoolExecutor(THREADS, "pictures")
