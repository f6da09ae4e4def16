"""Tonight as pages show it: by the policy, else what a drain by hand would do. Knows no page.

A look ahead asks the governor about each job in turn, so one answer serves every viewer for as
long as the queue it was made from is the same, and for a few seconds at most.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from worker.db.connection import Database
from worker.queue.deferral import Reason
from worker.read.jobs import JobView
from worker.read.tonight import Preview, preview
from worker.schedule.admission import memory_of
from worker.schedule.autonomy import Status
from worker.schedule.policy import Policy

KEPT_S = 5.0
"""Seconds that a look ahead is shown to others: memory and the clock move on."""
FORESEEN = 12
"""Queued jobs that a page looks ahead at unless it is asked for more."""


class Tonight(NamedTuple):
    """A preview, and who would start it."""

    plan: Preview
    by_hand: bool


class _Kept(NamedTuple):
    made: float
    of: tuple[Any, ...]
    found: Tonight


_kept: weakref.WeakKeyDictionary[Database, dict[int, _Kept]] = weakref.WeakKeyDictionary()
_turn = threading.Lock()


def tonight(
    database: Database,
    *,
    stand: Status,
    queue: Sequence[JobView],
    running: Sequence[JobView],
    now: float,
    proposed: Policy | None = None,
    resumed: bool = False,
    limit: int = FORESEEN,
) -> Tonight:
    """Of the first `limit` queued jobs, behind what runs now.

    `stand`, `queue`, `running`: what the page shows beside it, the jobs in their order. When any
    of it changes the look is made anew, so the two never contradict each other. `proposed` and
    `resumed`: as if these terms were armed, as if the queue were not paused.
    """
    of = (
        proposed,
        resumed,
        stand.armed,
        stand.changed_at,
        stand.reason,
        stand.spent_usd,
        stand.used_hours,
        database.settings,
        tuple((job.id, job.waits_for and job.waits_for.reason) for job in queue),
        tuple((job.id, job.attempt) for job in running),
    )
    with _turn:  # one look at a time: a hundred viewers of one change cost one
        mine = _kept.setdefault(database, {})
        known = mine.get(limit)
        if known is not None and known.of == of and time.monotonic() - known.made < KEPT_S:
            return known.found
        found = _look(database, now, stand.armed, proposed, resumed=resumed, limit=limit)
        mine[limit] = _Kept(time.monotonic(), of, found)
        return found


def _look(
    database: Database,
    now: float,
    armed: bool,
    proposed: Policy | None,
    *,
    resumed: bool,
    limit: int,
) -> Tonight:
    memory = cache(lambda: memory_of(database))
    if armed or proposed is not None:
        found = preview(database, now, memory, proposed=proposed, resumed=resumed, limit=limit)
        if proposed is not None or found.starts_at is not None or found.reason == Reason.PAUSED:
            return Tonight(found, by_hand=found.ordered)
    by_hand = preview(database, now, memory, by_hand=True, resumed=resumed, limit=limit)
    return Tonight(by_hand, by_hand=True)
