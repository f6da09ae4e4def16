"""The status strip: what stands at the top of every page about the lane, read once for all of them.

What runs and for how long yet, free memory against the floor, what is left of tonight's budget, how
long the queue is, and whether anything starts by itself. Knows no page.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy.exc import SQLAlchemyError

from app.text import wording
from app.text.headline import Headline
from engine.contract.errors import NightlaneError
from worker.amounts import dollars, exact
from worker.db.connection import Database
from worker.memory.rule import limits
from worker.queue.pausing import Pause
from worker.queue.states import State
from worker.read import feed, jobs
from worker.read.jobs import JobView
from worker.schedule import autonomy
from worker.schedule.admission import memory_of

_LOG = logging.getLogger(__name__)

KEPT_S = 1.0
"""One reading serves every page that asks within this time, unless something was written."""


class Autonomy(StrEnum):
    """Whether jobs are started by themselves."""

    OFF = "OFF"
    ARMED = "ARMED"
    RUNNING = "RUNNING"


MEANINGS = {
    Autonomy.OFF: "nothing is started by itself; a person's `cockpit drain` or Run now does it",
    Autonomy.ARMED: "queued jobs start by themselves in the policy's hours and within its cap",
    Autonomy.RUNNING: "armed, and a job runs now",
}


@dataclass(frozen=True)
class Strip:
    """The state of the house at one moment."""

    at: float
    position: int
    """The newest change before it was read: a page asks the stream for what came after."""
    job: JobView | None
    """What runs; the oldest of several."""
    headline: Headline | None
    free_gb: float | None
    floor_gb: float
    memory_level: str
    """ok, warn or bad: the watchdog's levels."""
    budget: str
    """What is left of the day's caps, in words."""
    queued: int
    pause: Pause | None
    autonomy: Autonomy
    why: str
    """The policy in words, or why it starts nothing now."""
    lease_s: float
    """Seconds without a heartbeat after which a job is stale."""

    @property
    def progress(self) -> float | None:
        """Share of its steps that the running job has done; None where it has counted none."""
        head = self.headline
        if head is None or head.step is None or not head.max_steps:
            return None
        return min(1.0, head.step / head.max_steps)

    @property
    def icon(self) -> str:
        """What the tab's icon says: a run needs a person, something runs, or neither."""
        if self._needs_a_person():
            return "icon-needs-you.svg"
        return "icon-running.svg" if self.job else "icon.svg"

    def _needs_a_person(self) -> bool:
        silent = self.headline is not None and self.headline.silent_since is not None
        beat = (self.job.heartbeat_at or self.job.started_at) if self.job else None
        stale = beat is not None and self.at - beat >= self.lease_s
        return self.memory_level == "bad" or silent or stale


class Strips:
    """Reads the strip once for all pages that ask while nothing is written.

    Where the database does not say whether something was, each page reads it anew.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn = threading.Lock()
        self._kept: Strip | None = None
        self._stamp: int | None = None

    def now(self) -> Strip | None:
        """The strip; None while the database cannot be read."""
        with self._turn:
            try:
                # Before the reading: what is written meanwhile is read by the next page.
                stamp = self._database.stamp()
                if stamp is None or stamp != self._stamp or not self._is_young():
                    self._kept = read_strip(self._database, time.time())
                    self._stamp = stamp
            except (SQLAlchemyError, NightlaneError) as error:
                _LOG.warning("the status strip cannot be read: %s", error)
                self._kept = None
            return self._kept

    def _is_young(self) -> bool:
        return self._kept is not None and 0 <= time.time() - self._kept.at < KEPT_S


def read_strip(database: Database, now: float) -> Strip:
    """A few indexed reads, and one look at the machine's memory."""
    position = feed.last_change_id(database)
    running = jobs.running(database)
    job = running[0] if running else None
    status = autonomy.status(database, now)
    memory = memory_of(database)
    held = limits(database.settings, memory.total_gb or 0.0)
    return Strip(
        at=now,
        position=position,
        job=job,
        headline=Headline.of(job) if job else None,
        free_gb=memory.free_gb,
        floor_gb=held.floor_gb,
        memory_level=_level(memory.free_gb, held.warn_gb, held.floor_gb),
        budget=_budget(status),
        queued=jobs.counts(database)[State.QUEUED],
        pause=jobs.paused(database),
        autonomy=_autonomy(status, runs=job is not None),
        why=status.detail,
        lease_s=database.settings.lease_s,
    )


def _level(free_gb: float | None, warn_gb: float, floor_gb: float) -> str:
    if free_gb is None or free_gb >= warn_gb:
        return "ok"
    return "warn" if free_gb >= floor_gb else "bad"


def _autonomy(status: autonomy.Status, *, runs: bool) -> Autonomy:
    if not status.armed:
        return Autonomy.OFF
    return Autonomy.RUNNING if runs else Autonomy.ARMED


def _budget(status: autonomy.Status) -> str:
    """What the caps of the local day leave; what was spent where there is none."""
    terms = status.terms or {}
    left = []
    if (cap := terms.get("cap_usd")) is not None:
        left.append(f"${max(0.0, cap - status.spent_usd):.2f} of {dollars(cap)}")
    if (hours := terms.get("cap_gpu_hours")) is not None:
        left.append(f"{max(0.0, hours - status.used_hours):.1f} of {exact(hours)} h")
    if left:
        return f"{' and '.join(left)} left"
    if status.spent_usd:
        return f"no cap, {wording.money(status.spent_usd)} spent"
    return f"no cap, {status.used_hours:.1f} h used"
