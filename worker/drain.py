"""`cockpit drain`: take the lane, rescue what died, run the queue, give the lane back.

The one flow of a night, in a process and main thread of its own. It ends when nothing is
eligible; SIGTERM and Ctrl-C end it earlier: the engine writes a checkpoint, the job goes back to
the queue, the next drain resumes it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from worker.attempt.rescue import rescue
from worker.attempt.supervisor import Supervisor
from worker.attempt.writing import Settled, actor
from worker.database import Database, open_database
from worker.jobs.queue import Claim, claim, has_queued
from worker.lane.lock import Lease, hold_lane
from worker.lane.policy import armed
from worker.lane.watchdog import Reader, available_gb
from worker.settings import WorkerSettings


@dataclass
class DrainReport:
    """What one drain did."""

    rescued: list[Settled] = field(default_factory=list)
    """Attempts of dead supervisors, as they were settled."""
    ran: list[Settled] = field(default_factory=list)
    """Attempts that this drain ran, in order; a job can be in it twice."""
    stopped: bool = False
    """It was asked to end before the queue was empty."""


def drain(
    settings: WorkerSettings,
    *,
    wait: bool = False,
    scheduled: bool = False,
    until: Callable[[], bool] | None = None,
    free_memory: Reader = available_gb,
) -> DrainReport:
    """Run queued jobs on the lane of the settings, one after the other. Call from a main thread.

    `wait`: poll for further jobs instead of ending. `scheduled`: by tick or cron, so the policy
    is obeyed; unarmed it only rescues. `until`: asked between jobs; true ends the drain.
    `free_memory`: what the watchdog reads. Raises LaneHeldError at once when a living drain has
    the lane, LeaseLostError when one took it over, DatabaseError, RunDirectoryError.
    """
    report = DrainReport()
    with (
        _stop_requests() as stop,
        open_database(settings) as db,
        hold_lane(db, settings) as lease,
    ):
        report.rescued += rescue(lease)
        may_run = not scheduled or armed(settings)
        while may_run and not stop() and not (until and until()):
            job = _claim_next(db, lease, report)
            if job:
                report.ran.append(Supervisor(lease, job, stop, free_memory).run())
            elif wait:
                time.sleep(settings.poll_s)
                lease.keep()
            else:
                break
        report.stopped = stop()
    return report


def _claim_next(db: Database, lease: Lease, report: DrainReport) -> Claim | None:
    """The next job under a fence of its own; not one that this drain put back for later."""
    not_now = [settled.job_id for settled in report.ran if settled.later]
    if not has_queued(db, skip=not_now):
        return None
    with db.write_tx() as conn:
        fence = lease.fence + 1
        job = claim(conn, lane=lease.lane, fence=fence, actor=actor(), skip=not_now)
        if job:
            lease.advance(conn, job.job_id)
    if job:
        lease.fence = job.fence
    return job


@contextmanager
def _stop_requests() -> Iterator[Callable[[], bool]]:
    """SIGTERM, Ctrl-C and a closed terminal become a question; asked twice, nothing changes."""
    asked: list[int] = []
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it on purpose
        numbers.append(signal.SIGHUP)

    def note(number: int, _frame: FrameType | None) -> None:
        asked.append(number)

    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
