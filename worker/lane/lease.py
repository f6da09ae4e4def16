"""The lane lock (mutual exclusion per accelerator): a lease in the database, with a fence.

The lease and its fence decide: a holder whose fence is not the newest writes nothing. A
machine-wide lock keeps two data directories off one accelerator; it is closed on exec, so no
engine keeps it. A holder that is provably dead is replaced at once; one that is silent for longer
than the lease is verified, killed and confirmed gone first, and so is what is left of its attempts.
A change of holder or of job announces itself (a trigger of `lane`). Knows no job
but the one that the lane runs, and starts nothing.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from engine.contract.errors import NightlaneError
from engine.contract.run_dir import RunDir
from worker.db.connection import Database, DatabaseError
from worker.db.tables import job, lane
from worker.lane.machine_lock import machine_lock
from worker.lane.process_id import ProcessIdentity, kill_and_confirm
from worker.queue.states import State
from worker.settings import WorkerSettings

_LOG = logging.getLogger(__name__)

KILL_PATIENCE_S = 10.0
BEAT_PATIENCE_S = 0.5
"""Seconds that a heartbeat waits for another writer: its process has more to look after."""

RETRY_S = 1.0
"""Seconds between two tries while the database cannot be written."""

EndAttempt = Callable[[RunDir, int, str | None], None]
"""Kills what is left of an attempt, by its run directory, its number and its engine's identity (if
one was noted), and waits until all of it is gone. Raises StillAliveError.
"""


class LaneHeldError(NightlaneError):
    """Another drain has the lane."""

    retryable = True

    def __init__(self, lane_name: str, by: str, remedy: str) -> None:
        self.lane = lane_name
        super().__init__(f'lane "{lane_name}" is held by {by}; wait, or {remedy}')


class LeaseLostError(NightlaneError):
    """This drain was silent for so long that another one took the lane; it must stop."""

    def __init__(self, lane_name: str, fence: int) -> None:
        self.lane = lane_name
        self.fence = fence
        super().__init__(
            f'lane "{lane_name}" was taken over (fence {fence} is no longer the newest); '
            "nothing more was written, the new drain goes on with the job"
        )


class Outage:
    """A stretch in which the database cannot be written, and how long a running job bears it.

    What an engine measures stands in its files and what it takes to go on stands in its
    checkpoints, so a disk that is full for a minute, or a program that keeps the database locked,
    is no reason to end a run.
    """

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


_HELD = update(lane).where(
    lane.c.name == bindparam("held_lane"), lane.c.fence == bindparam("held_fence")
)


@dataclass
class Lease:
    """Held by one drain for one lane."""

    db: Database
    lane: str
    fence: int
    """Grows with each takeover and each claim; every write of an attempt carries it."""
    outage: Outage = field(init=False)
    """Whether the database can be written now; a running job bears it for a while."""
    _due: float = 0.0

    def __post_init__(self) -> None:
        self.outage = Outage(self.db.settings.database_patience_s)

    def advance(self, conn: Connection, job_id: int) -> None:
        """The next fence, for a claim made in `conn`; `fence` follows when that has committed.

        Raises LeaseLostError.
        """
        self._update(conn, fence=self.fence + 1, job_id=job_id)

    def clear_job(self, conn: Connection) -> None:
        """The lane runs nothing now. Raises LeaseLostError."""
        self._update(conn, job_id=None)

    def keep(self) -> None:
        """The heartbeat of lane and job, when it is due.

        Raises LeaseLostError, and DatabaseError when it could not be written for too long.
        """
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + self.db.settings.heartbeat_s
        with self.outage.borne(), self.db.write_tx(patience_s=BEAT_PATIENCE_S) as conn:
            beat = {"heartbeat_at": time.time(), "beat": now}
            self._update(conn, **beat)
            runs = update(job).where(job.c.lane == self.lane, job.c.state == State.RUNNING)
            conn.execute(runs.values(beat))

    def release(self) -> None:
        """Give the lane back; a lane that was lost meanwhile is left alone."""
        with self.db.write_tx() as conn, contextlib.suppress(LeaseLostError):
            self._update(conn, holder=None, job_id=None)

    def _update(self, conn: Connection, **values: Any) -> None:
        held = {"held_lane": self.lane, "held_fence": self.fence}
        if conn.execute(_HELD, held | values).rowcount != 1:
            raise self.lost()

    def lost(self) -> LeaseLostError:
        """The error of a write that changed no row."""
        return LeaseLostError(self.lane, self.fence)


@contextmanager
def hold_lane(
    db: Database,
    settings: WorkerSettings,
    *,
    end: EndAttempt,
    scheduled: bool = False,
) -> Iterator[Lease]:
    """Hold the lane of the settings inside the block.

    `end`: how the attempts of a dead or silent holder are killed (`Runner.kill`). `scheduled`: the
    holder obeys the policy; those who wait are told so. Raises LaneHeldError at once when somebody
    living has it.
    """
    seen = _evict_silent_holder(db, settings, end)
    with machine_lock(settings) as keeper:
        if keeper is not None:
            remedy = "set NIGHTLANE_LANE when it is another accelerator"
            raise LaneHeldError(settings.lane, str(keeper), remedy)
        lease = _take(db, settings, seen, scheduled=scheduled)
        try:
            yield lease
        except BaseException:
            # The first error counts; whoever comes next finds this process dead.
            with contextlib.suppress(DatabaseError):
                lease.release()
            raise
        lease.release()


# --- the lease ---


def _evict_silent_holder(db: Database, settings: WorkerSettings, end: EndAttempt) -> Row[Any]:
    """Make sure that nobody living holds the lease; returns the lane's row as it was judged."""
    row = _lane_row(db, settings.lane)
    if row.holder is None:
        return row
    holder = ProcessIdentity.parse(row.holder)
    if holder.alive():
        if not _silent(db, settings, row, holder):
            raise LaneHeldError(settings.lane, *_describe(db, settings, row, holder))
        # Alive, but silent for longer than its lease: it would wake up later and interfere.
        kill_and_confirm(holder, patience_s=KILL_PATIENCE_S)
    _end_attempts(db, settings, end)
    return row


def _silent(db: Database, settings: WorkerSettings, row: Row[Any], holder: ProcessIdentity) -> bool:
    """Whether a living holder let its lease run out, and not because nobody could write.

    Raises DatabaseError while the database cannot be written: then silence proves nothing.
    """
    if time.monotonic() - row.beat <= settings.lease_s:
        return False
    if holder.stopped():
        return True
    with db.write_tx() as conn:
        conn.execute(update(lane).where(lane.c.name == settings.lane).values(fence=lane.c.fence))
    # It can be written, maybe only again: its holder gets the time of a heartbeat to show itself.
    deadline = time.monotonic() + settings.heartbeat_s + BEAT_PATIENCE_S
    while holder.alive() and time.monotonic() < deadline:
        if _lane_row(db, settings.lane).beat != row.beat:
            return False
        time.sleep(0.05)
    return True


def _take(db: Database, settings: WorkerSettings, seen: Row[Any], *, scheduled: bool) -> Lease:
    """One conditional UPDATE against the holder that was judged; the jobs' fences move with it.

    Not against its fence: it may have claimed another job before it was killed. From the commit
    on, every write of the holder before changes 0 rows.
    """
    now = time.time()
    with db.write_tx() as conn:
        fence = conn.execute(
            update(lane)
            .where(lane.c.name == settings.lane, lane.c.holder.is_not_distinct_from(seen.holder))
            .values(
                fence=lane.c.fence + 1,
                holder=str(ProcessIdentity.current()),
                scheduled=scheduled,
                job_id=None,
                since=now,
                heartbeat_at=now,
                beat=time.monotonic(),
            )
            .returning(lane.c.fence)
        ).scalar_one_or_none()
        if fence is None:
            raise LaneHeldError(settings.lane, "a drain that was faster", "look again")
        orphans = update(job).where(job.c.lane == settings.lane, job.c.state == State.RUNNING)
        conn.execute(orphans.values(fence=fence))
    return Lease(db, settings.lane, fence)


def _lane_row(db: Database, name: str) -> Row[Any]:
    statement = select(lane).where(lane.c.name == name)
    with db.read() as conn:
        row = conn.execute(statement).one_or_none()
    if row is not None:
        return row
    with db.write_tx() as conn:
        if conn.execute(statement).one_or_none() is None:
            conn.execute(insert(lane).values(name=name, fence=0))
        return conn.execute(statement).one()


def _end_attempts(db: Database, settings: WorkerSettings, end: EndAttempt) -> None:
    """Nothing of an earlier holder's attempts is left when the lane changes hands."""
    statement = select(job.c.id, job.c.attempt, job.c.engine).where(
        job.c.lane == settings.lane, job.c.state == State.RUNNING
    )
    with db.read() as conn:
        attempts = conn.execute(statement).all()
    for number, attempt, engine in attempts:
        end(RunDir(settings.runs_dir / str(number)), attempt, engine)


def _describe(
    db: Database, settings: WorkerSettings, row: Row[Any], holder: ProcessIdentity
) -> tuple[str, str]:
    """(who holds it, the way out): `job 41 (rl_run, 12 min)`."""
    with db.read() as conn:
        runs = conn.execute(select(job).where(job.c.id == row.job_id)).one_or_none()
    if runs is None:
        return f"a drain that waits for jobs (process {holder.pid})", f"run: kill {holder.pid}"
    minutes = (time.time() - (runs.started_at or time.time())) / 60
    sentinel = settings.runs_dir / str(runs.id) / "attempts" / f"{runs.attempt:03d}" / "abort"
    return f"job {runs.id} ({runs.kind}, {minutes:.0f} min)", f"stop it: touch {sentinel}"
