"""The meter (cost accounting) beside one running attempt, and the brake that goes by it.

Every few seconds what was used goes into the ledger, under the attempt's fence; in between the
brake counts on by itself, so a database that is away stops no brake. Knows no process: it says
that the attempt must stop, the supervisor stops it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy import select

from engine.contract.run_dir import Abort, AbortReason
from worker.budget import ledger
from worker.budget.ledger import SECONDS_PER_HOUR, Spent
from worker.db import decisions
from worker.db.connection import DatabaseError
from worker.db.tables import job
from worker.db.zone import days_of
from worker.lane.lease import BEAT_PATIENCE_S, Lease
from worker.queue.states import State
from worker.schedule.governor import Terms, stop_reason
from worker.schedule.policy import Standing, standing_in


class Running(NamedTuple):
    """The attempt that is metered."""

    job_id: int
    attempt: int
    actor: str


class LaneMeter:
    """Call `look` in the supervisor's loop."""

    def __init__(
        self,
        lease: Lease,
        running: Running,
        *,
        obeyed: Standing | None,
        energy: Callable[[], float | None] = lambda: None,
        clock: Callable[[], float] = time.time,
        beat: Callable[[], float] = time.monotonic,
    ) -> None:
        """`obeyed`: the policy of a scheduled drain; a person's order has no brake.

        `energy`: joules used so far, None where nothing tells.
        """
        self._lease = lease
        self._settings = lease.db.settings
        self._running = running
        self._obeyed = obeyed
        self._clock, self._beat, self._energy = clock, beat, energy
        self._joules = energy()
        self._counted_to = beat()
        self._due = self._counted_to
        self._today = Spent(0.0, 0.0)
        self._day = None if obeyed is None else obeyed.cap_days().day_of(clock())
        self.tripped: AbortReason | None = None
        """Why it asked the attempt to stop."""

    def look(self) -> Abort | None:
        """One look; a request when the attempt must stop. Raises LeaseLostError."""
        now = self._beat()
        due = now >= self._due or self._day_turned()
        if due and self._lease.outage.worth_trying():
            self._due = now + self._settings.meter_s
            with self._lease.outage.borne():
                self._write(now)
        if self.tripped or self._reason(now) is None:
            return None
        # The policy may have been changed since it was read: what stops a run is what it says now.
        if not due and self._lease.outage.worth_trying():
            with self._lease.outage.borne():
                self._write(now)
        found = self._reason(now)
        return None if found is None else self._stop(*found)

    def _reason(self, now: float) -> tuple[AbortReason, str] | None:
        """Why the policy, as it was read last, stops the attempt."""
        if self._obeyed is None:
            return None
        terms = Terms(self._settings, self._obeyed, self._clock())
        return stop_reason(terms, self._up_to(now), self._settings.price_usd_h)

    def _write(self, now: float) -> None:
        """Charge what was used since the row before, and see what the day has come to."""
        seconds, moment = now - self._counted_to, self._clock()
        joules = self._energy()
        used = None if joules is None else joules - (self._joules or 0.0)
        with self._lease.db.write_tx(patience_s=BEAT_PATIENCE_S) as conn:
            mine = select(job.c.id).where(
                job.c.id == self._running.job_id,
                job.c.state == State.RUNNING,
                job.c.fence == self._lease.fence,
            )
            if conn.execute(mine).one_or_none() is None:
                raise self._lease.lost()
            days = days_of(conn, self._lease.lane)
            meter = ledger.Meter(
                self._lease.lane,
                self._running.job_id,
                self._running.attempt,
                self._settings.price_usd_h,
                days,
                self._running.actor,
            )
            if seconds > 0:
                begin = moment - seconds
                ledger.use(conn, meter, begin=begin, seconds=seconds, at=moment, joules=used)
            today = ledger.spent(conn, self._lease.lane, days.day_of(moment))
            fresh = standing_in(conn, self._lease.lane) if self._obeyed else None
        self._counted_to, self._today, self._joules = now, today, joules
        # Switched off, the policy says nothing any more: what runs goes on to its end.
        self._obeyed = fresh if fresh is not None and fresh.armed else None
        self._day = None if self._obeyed is None else days.day_of(moment)

    def _up_to(self, now: float) -> Spent:
        """The day's use with what no row counts yet."""
        since = now - self._counted_to
        usd = since / SECONDS_PER_HOUR * self._settings.price_usd_h
        return Spent(self._today.usd + usd, self._today.seconds + since)

    def _stop(self, reason: AbortReason, detail: str) -> Abort:
        """Say it in the lane's audit, once; without a database the sentinel alone says it."""
        self.tripped = reason
        with contextlib.suppress(DatabaseError), self._lease.db.write_tx() as conn:
            decisions.record(
                conn,
                self._lease.lane,
                decisions.STOP,
                f"asked to stop at a checkpoint: {detail}",
                actor=self._running.actor,
                job_id=self._running.job_id,
                rule=reason,
                numbers={
                    "attempt": self._running.attempt,
                    "today_usd": round(self._up_to(self._beat()).usd, 4),
                    "today_hours": round(self._up_to(self._beat()).seconds / SECONDS_PER_HOUR, 4),
                },
                at=self._clock(),
            )
        return Abort(reason=reason, tripped_at=self._clock())

    def _day_turned(self) -> bool:
        if self._obeyed is None or self._day is None:
            return False
        return self._obeyed.cap_days().day_of(self._clock()) != self._day
