"""Starting drains from the web process: by the clock (the tick), or because a person said so.

A drain gets a session of its own and its output goes to a file, so nothing that happens to the
pages reaches it. The tick only starts drains; what a scheduled drain may do is the policy's.
"""

from __future__ import annotations

import datetime
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from apscheduler.schedulers.background import BackgroundScheduler

from app.web.detached import Detached, spawn_cockpit
from worker.db.connection import Database, DatabaseError
from worker.lane.resident import owed
from worker.queue.evaluations import any_is_watched
from worker.queue.states import State
from worker.read import jobs
from worker.read.lane import lane_status
from worker.schedule.looks import Timer
from worker.schedule.policy import Standing, standing
from worker.settings import WorkerSettings

_LOG = logging.getLogger(__name__)

LANE_HELD = 4
"""The exit status of a drain that found another one at work: nothing is wrong then."""
MISFIRE_GRACE_S = 60
"""A tick that comes later than this (the box slept) is left out; the next one does its work."""


FOLLOW_S = 5.0
"""Seconds between two looks at the policy: so long may a change of it go unnoticed."""
CLOCK_SET_S = 2.0
"""By so much the wall clock must have moved against the other one to count as set, or slept."""
TICK, FOLLOW = "tick", "follow"


class Drains:
    """The drains that this process started."""

    def __init__(self, database: Database, settings: WorkerSettings) -> None:
        self._database = database
        self._settings = settings
        self._started: list[Detached] = []
        self._scheduled: Detached | None = None
        """The newest drain that the tick started; it may have ended."""
        self._failed: Detached | None = None
        self._turn = threading.Lock()

    def run_now(self) -> None:
        """A person's order: it asks no policy. A lane that is held is left to its holder."""
        self._start("drain", log_name="drain.log")

    def tick(self) -> None:
        """One tick: a scheduled drain, if there is anything to run, to score, to rescue or to
        restore.

        One at a time: a drain that still starts up holds no lane yet, so the lane cannot tell. One
        that holds it and fell silent is no reason to wait: the next one takes the lane over.
        """
        counts = jobs.counts(self._database)
        lane = lane_status(self._database, self._settings.lane)
        busy = lane.held and (lane.heartbeat_age_s or 0) <= self._settings.lease_s
        waiting = counts[State.QUEUED] + counts[State.RUNNING]
        something = waiting or owed(self._database) or any_is_watched(self._database)
        if busy or self._starts_up(lane.pid) or not something:
            return
        self._scheduled = self._start("drain", "--scheduled", log_name="drain-scheduled.log")

    def trouble(self) -> str | None:
        """Why the newest drain of ours that failed did, and where its output is."""
        with self._turn:
            self._reap()
            failed = self._failed
        if failed is None:
            return None
        said = failed.last_line() or "it said nothing"
        return f"the last drain started from here failed: {said}; its output: {failed.log}"

    def alive(self) -> int:
        """How many still run."""
        with self._turn:
            self._reap()
            return len(self._started)

    def _starts_up(self, holder: int | None) -> bool:
        """Whether a drain of the tick lives that does not hold the lane."""
        newest = self._scheduled
        return newest is not None and newest.poll() is None and newest.process.pid != holder

    def _start(self, *arguments: str, log_name: str) -> Detached:
        with self._turn:
            self._reap()
            self._failed = None
            started = spawn_cockpit(arguments, self._settings, log_name)
            self._started.append(started)
        return started

    def _reap(self) -> None:
        """Ended children are asked for their status, or they would stay as zombies."""
        for drain in self._started:
            if drain.poll() not in {None, 0, LANE_HELD}:
                self._failed = drain
        self._started = [drain for drain in self._started if drain.poll() is None]


class Ticker:
    """The timer: calls `tick` at the policy's interval, for as long as the lane is armed.

    The policy may change at any time and by another process, so it is looked at again and again, by
    a clock that nobody sets: a timer of the wall clock stands still for an hour when that is put
    back by one. A look follows at once when the lane is armed, its terms change, its window opens,
    or the clock was set. A board that starts goes on where the one before it left off.
    """

    def __init__(
        self,
        drains: Drains,
        database: Database,
        clock: Callable[[], float] = time.time,
        beat: Callable[[], float] = time.monotonic,
    ) -> None:
        self._drains = drains
        self._database = database
        self._clock, self._beat = clock, beat
        self._offset = clock() - beat()
        self._obeyed: Standing | None = None
        """The armed policy that the timer goes by."""
        self._opens: float | None = None
        """When its window opens; None while it is open."""
        self._ended = threading.Event()
        self._timer: Timer | None = None
        self.scheduler = BackgroundScheduler(daemon=True)

    def start(self) -> None:
        """Follow the policy from now on."""
        self._timer = Timer(self._database.settings)
        self.scheduler.start()
        self._go_on(self._timer.due_at)
        self.follow()
        threading.Thread(target=self._follow_on, name=FOLLOW, daemon=True).start()

    def shutdown(self) -> None:
        self._ended.set()
        self.scheduler.shutdown(wait=False)
        if self._timer is not None:
            self._timer.__exit__()

    def _follow_on(self) -> None:
        while not self._ended.wait(FOLLOW_S):
            try:
                self.follow()
            except Exception:  # noqa: BLE001 - a look that failed must not end all that follow
                _LOG.exception("the policy could not be followed; tried again in %g s", FOLLOW_S)

    def _go_on(self, due_at: float | None) -> None:
        """Take the standing policy up: the next look is when it was due, an interval at most."""
        with suppress(DatabaseError):  # said by `follow`
            found = standing(self._database)
            if found is None or not found.armed:
                return
            now, interval_s = self._clock(), found.interval_min * 60
            waits_s = interval_s if due_at is None else min(max(0.0, due_at - now), interval_s)
            self._begin(interval_s, waits_s)
            opens = found.opens_at(now)
            self._obeyed, self._opens = found, opens if opens > now else None

    def follow(self) -> None:
        """Begin, change or end the tick as the policy says."""
        try:
            found = standing(self._database)
        except DatabaseError as error:
            _LOG.warning("the policy cannot be read: %s", error)
            return
        now = self._clock()
        offset = now - self._beat()
        was_set, self._offset = abs(offset - self._offset) > CLOCK_SET_S, offset
        if found is None or not found.armed:
            if self._obeyed is not None:
                self.scheduler.remove_job(TICK)
            self._obeyed = self._opens = None
        else:
            opened = self._opens is not None and now >= self._opens
            if opened or was_set or found != self._obeyed:
                self._begin(found.interval_min * 60)
                _LOG.info("a tick every %g min starts scheduled drains", found.interval_min)
            opens = found.opens_at(now)
            self._obeyed, self._opens = found, opens if opens > now else None
        if self._timer is not None:
            self._timer.says(self._next_at())

    def _next_at(self) -> float | None:
        """When the next look is: at the interval, or when the window opens."""
        timer = self.scheduler.get_job(TICK)
        if timer is None or timer.next_run_time is None:
            return None
        at = float(timer.next_run_time.timestamp())
        return at if self._opens is None else min(at, self._opens)

    def _begin(self, seconds: float, waits_s: float = 0.0) -> None:
        """A tick now, or after a wait, and from then on one at the interval."""
        now = datetime.datetime.now(self.scheduler.timezone)
        self.scheduler.add_job(
            self._drains.tick,
            "interval",
            id=TICK,
            seconds=seconds,
            next_run_time=now + datetime.timedelta(seconds=waits_s),
            max_instances=1,
            coalesce=True,
            misfire_grace_time=MISFIRE_GRACE_S,
            replace_existing=True,
        )
