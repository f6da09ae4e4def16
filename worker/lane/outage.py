"""A stretch in which the database cannot be written, and how long a running job bears it.

What an engine measures stands in its files and what it takes to go on stands in its checkpoints,
so a disk that is full for a minute, or a program that keeps the database locked, is no reason to
end a run. Knows no lane and no statement.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from worker.db.connection import DatabaseError

_LOG = logging.getLogger(__name__)


RETRY_S = 1.0
"""Seconds between two tries while it lasts."""


class Outage:
    """Counts the seconds since the first write that failed."""

    def __init__(self, patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._since: float | None = None
        self._tried = 0.0

    def worth_trying(self) -> bool:
        """False for a moment after a write that failed."""
        return self._since is None or self._clock() - self._tried >= RETRY_S

    @contextmanager
    def borne(self) -> Iterator[None]:
        """Bear a write that fails for now; the caller does it again later.

        Raises DatabaseError when waiting cannot help, or when the patience is at its end.
        """
        try:
            yield
        except DatabaseError as error:
            self.bear(error)
        else:
            self._over()

    def bear(self, error: DatabaseError) -> None:
        """Say it the first time; raise the error when it is not to be borne."""
        self._tried = self._clock()
        if self._since is None:
            self._since = self._tried
            _LOG.warning("%s (trying again for %g s)", error, self._patience_s)
        if not error.retryable or self._tried - self._since >= self._patience_s:
            raise error

    def _over(self) -> None:
        if self._since is not None:
            away_s = self._clock() - self._since
            self._since = None
            _LOG.warning("the database can be written again, after %.0f s", away_s)
