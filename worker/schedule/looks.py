"""Who looks at the queue by itself, and when next: `cockpit serve`, and the crontab.

A board that is up keeps a lock on a file of the data directory, which the system lets go of when
its process ends, however it ends; the file says when its timer looks next. Starts nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Self

from worker.schedule import cron
from worker.settings import WorkerSettings

_CRON_KEPT_S = 30.0
"""For so long the crontab is believed as it was read."""


class Looks(NamedTuple):
    """Unix seconds of the next look of each; None = it does not look, or nobody knows when."""

    serve: bool
    serve_at: float | None
    cron: bool
    cron_at: float | None

    @property
    def nobody(self) -> bool:
        """Whether an armed lane would start nothing by itself."""
        return not (self.serve or self.cron)

    @property
    def next_at(self) -> float | None:
        """The earlier one of those that are known."""
        return min((at for at in (self.serve_at, self.cron_at) if at is not None), default=None)


NOBODY = (
    "armed, but nothing looks at the queue: no `cockpit serve` runs here and no crontab line is "
    "installed; start one, or run: cockpit autonomy on --install-cron"
)


class Timer:
    """The mark of a board that is up. Several may be."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._descriptor = os.open(_file(settings), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        self.due_at = _next_at(self._descriptor)
        """When the board before this one would have looked next; None = it said nothing."""
        self._said = self.due_at

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def says(self, next_at: float | None) -> None:
        """Write down when it looks next; None = the lane is not armed."""
        if next_at != self._said:
            self._said = next_at
            # As long as the one before it: nobody may read half of two.
            os.pwrite(self._descriptor, json.dumps({"next_at": next_at}).ljust(60).encode(), 0)


def looks_of(settings: WorkerSettings, cron_line: str | None, now: float) -> Looks:
    """Who looks now. `cron_line`: as the policy keeps it; whoever took it out by hand is seen."""
    serve, serve_at = _serve(settings)
    stands = cron_line is not None and _in_crontab(settings, int(time.monotonic() / _CRON_KEPT_S))
    cron_at = cron.next_run(cron_line, now) if stands and cron_line is not None else None
    return Looks(serve, serve_at, stands, cron_at)


def _serve(settings: WorkerSettings) -> tuple[bool, float | None]:
    try:
        descriptor = os.open(_file(settings), os.O_RDONLY)
    except OSError:
        return False, None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True, _next_at(descriptor)
    else:
        return False, None
    finally:
        os.close(descriptor)


def _next_at(descriptor: int) -> float | None:
    with suppress(ValueError, KeyError, TypeError):
        at = json.loads(os.pread(descriptor, 60, 0))["next_at"]
        return None if at is None else float(at)
    return None


@lru_cache(maxsize=8)
def _in_crontab(settings: WorkerSettings, _period: int) -> bool:
    try:
        return cron.installed(settings)
    except cron.CrontabError:
        return False


def _file(settings: WorkerSettings) -> Path:
    return settings.data_dir / "timer.lock"
