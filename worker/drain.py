"""`cockpit drain`: take the lane, rescue what died, run the queue, give the lane back.

The one flow of a night, in a process and main thread of its own. It ends when nothing is
eligible; SIGTERM and Ctrl-C end it earlier: the engine writes a checkpoint, the job goes back to
the queue, the next drain resumes it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from sqlalchemy import Connection

from worker.attempt.rescue import rescue
from worker.attempt.runner.base import Runner
from worker.attempt.runner.local import LocalRunner
from worker.attempt.supervisor import Supervisor
from worker.attempt.writing import Settled, actor
from worker.budget.price import take_price
from worker.db.connection import Database, open_database
from worker.lane.accelerator import require_accelerator
from worker.lane.lease import Lease, hold_lane
from worker.queue.deferral import wake_due
from worker.queue.evaluations import any_is_watched, queue_evaluations
from worker.queue.submit import Claim, claim, look
from worker.report.digest import send_once
from worker.schedule.admission import Admission, PutOff
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
    paused: bool = False
    """The queue was paused when it ended."""
    put_off: list[PutOff] = field(default_factory=list)
    """Jobs that may not start yet, as they were put off by this drain."""
    withheld: str | None = None
    """Why the policy let nothing more start."""


def drain(
    settings: WorkerSettings,
    *,
    wait: bool = False,
    scheduled: bool = False,
    until: Callable[[], bool] | None = None,
    clock: Callable[[], float] = time.time,
    runner: Runner | None = None,
) -> DrainReport:
    """Run queued jobs on the lane of the settings, one after the other. Call from a main thread.

    `wait`: poll for further jobs instead of ending. `scheduled`: by tick or cron, so the policy
    is obeyed; unarmed it only rescues. `until`: asked between jobs; true ends the drain.
    `clock`: what start times are held against, Unix seconds. `runner`: where engines run; None =
    on this machine. Raises LaneHeldError at once when a living drain has the lane, LeaseLostError
    when one took it over, DatabaseError, RunDirectoryError, WatchdogError, EngineStartError, and
    after the rescue NoLaneError.
    """
    report = DrainReport()
    runner = runner or LocalRunner(settings)
    with _stop_requests() as stop, open_database(settings) as db:
        take_price(db)
        with hold_lane(db, settings, end=runner.kill, scheduled=scheduled) as lease:
            report.rescued += rescue(lease, runner)
            with Admission(lease, scheduled=scheduled, clock=clock) as admission:
                require_accelerator(settings.lane)
                while not stop() and not (until and until()) and admission.open():
                    job = claim_next(db, lease, report, admission, clock)
                    if job:
                        brake = admission.brake(job)
                        report.ran.append(Supervisor(lease, job, runner, stop, brake).run())
                        admission.after(report.ran[-1])
                    elif wait:
                        admission.hand_back()
                        db.await_write(settings.poll_s)
                        lease.keep()
                    else:
                        break
                report.stopped = stop()
                report.put_off = list(admission.put_off.values())
                report.withheld = admission.ended_by.detail if admission.ended_by else None
                admission.conclude(
                    ran=report.ran,
                    rescued=report.rescued,
                    interrupted=report.stopped or report.paused,
                )
        # The lane is free again: a message may take its time.
        if scheduled and admission.night_is_over:
            send_once(db, clock())
    return report


def claim_next(
    db: Database,
    lease: Lease,
    report: DrainReport,
    admission: Admission,
    clock: Callable[[], float],
) -> Claim | None:
    """The next job under a fence of its own; not one that this drain put back for later.

    A pause stops the claiming, not the job that runs.
    """
    not_now = [settled.job_id for settled in report.ran if settled.later]
    while True:
        _queue_evaluations(db, lease)
        ready = look(db, skip=not_now, now=clock())
        report.paused = ready.paused
        if ready.paused or not (ready.claimable or ready.due):
            return None
        if ready.due:
            with db.write_tx() as conn:
                wake_due(conn, clock())
        admitted = admission.admit(not_now)
        if admitted is None:
            return None
        with db.write_tx() as conn:
            job = _claim(conn, lease, admission, admitted, clock())
        if job:
            lease.fence = job.fence
            return job
        # Somebody cancelled or moved it meanwhile: the queue is looked at again.


def _queue_evaluations(db: Database, lease: Lease) -> None:
    """Jobs for the checkpoints that wait to be scored. To read the rows of a bench can take longer
    than a lease lasts: the heart beats on.
    """
    if not any_is_watched(db):
        return
    with futures.ThreadPoolExecutor(1, "evaluations") as pool:
        found = pool.submit(queue_evaluations, db, actor=actor())
        while not futures.wait([found], db.settings.poll_s).done:
            lease.keep()
    found.result()


def _claim(
    conn: Connection, lease: Lease, admission: Admission, admitted: int, now: float
) -> Claim | None:
    fence = lease.fence + 1
    job = claim(conn, lane=lease.lane, fence=fence, actor=actor(), only=admitted, now=now)
    if job:
        admission.begin(conn, job)
        lease.advance(conn, job.job_id)
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
