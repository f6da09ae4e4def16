"""Admission: what one drain asks and does around each attempt that it runs.

Between the queue and the supervisor: the policy (may anything start), the governor (may this job),
the arbiter (the lane is freed, and handed back), the ledger (reserve, meter). The one place that
knows the order of them; each of them knows nothing of the others.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from sqlalchemy import Connection, RowMapping, select, text
from sqlalchemy.exc import SQLAlchemyError

from engine.contract.errors import NightlaneError
from engine.contract.run_dir import Abort, AbortReason
from worker.attempt.writing import Settled, actor
from worker.budget import ledger
from worker.budget.energy import EnergyCounter
from worker.clock.night import night_at
from worker.db import decisions
from worker.db.connection import Database, DatabaseError
from worker.db.tables import DEFERRED, job
from worker.db.zone import days_of, zone_of
from worker.lane.lease import Lease, LeaseLostError
from worker.lane.resident import Arbiter, owed, returns_gb
from worker.memory.readings import HostMemory
from worker.memory.rule import limits
from worker.memory.sentry import device_of
from worker.queue.deferral import Deferral, Reason
from worker.queue.submit import Claim
from worker.schedule import governor
from worker.schedule.governor import Memory, Ruling, Terms
from worker.schedule.meter import LaneMeter, Running
from worker.schedule.policy import Standing, standing, withheld

_LOG = logging.getLogger(__name__)


@functools.cache
def _host(meminfo: Path, total_gb: float | None) -> HostMemory:
    """One for the whole process: it keeps its files open."""
    return HostMemory(meminfo, total_gb)


def memory_of(db: Database) -> Memory:
    """What the governor goes by, read now."""
    host = _host(db.settings.meminfo, db.settings.memory_total_gb)
    total = host.total_gb()
    floor = limits(db.settings, total or 0.0).floor_gb
    return Memory(host.free_gb(), total, floor, returns_gb(db))


class PutOff(NamedTuple):
    """A job that may not start yet."""

    job_id: int
    reason: Reason
    detail: str


class Admission:
    """Open it with the lane in hand. On its end the resident model is back, whatever happened."""

    def __init__(
        self, lease: Lease, *, scheduled: bool, clock: Callable[[], float] = time.time
    ) -> None:
        """`scheduled`: by tick or cron, so policy and caps are obeyed; else a person's order."""
        self._lease = lease
        self._db = lease.db
        self._settings = lease.db.settings
        self._scheduled = scheduled
        self._clock = clock
        self._host = _host(self._settings.meminfo, self._settings.memory_total_gb)
        self._arbiter = Arbiter(lease, self._host.free_gb, actor=actor())
        self._obeyed: Standing | None = None
        self._ruling: Ruling | None = None
        self._meter: LaneMeter | None = None
        self._stuck: Deferral | None = None
        self._free_before_gb: float | None = None
        self._reconsidered = False
        """Whether the jobs that were put off before were asked again."""
        self.put_off: dict[int, PutOff] = {}
        """What this drain put off, by job; the newest reason of each."""
        self.night_is_over = False
        """Whether the night's last job has ended, as far as the queue knows."""
        self.ended_by: Deferral | None = None
        """What the policy said when nothing more was to be started."""

    def __enter__(self) -> Self:
        if not self._scheduled:
            with self._db.write_tx() as conn:
                governor.ask_again(conn, (*governor.OURS, Reason.CANNOT_BEGIN, Reason.SERVER_LOST))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, LeaseLostError):
            return  # the lane is another drain's, and so is the debt
        # What cannot be written now stays owed; the error that is under way counts for more.
        quiet = contextlib.suppress(DatabaseError) if error else contextlib.nullcontext()
        with quiet:
            self.hand_back()

    def open(self) -> bool:
        """Whether anything may be started now."""
        if not self._scheduled:
            return True
        self._obeyed = standing(self._db)
        self.ended_by = withheld(self._db, self._obeyed, self._clock())
        if self.ended_by is None and not self._reconsidered:
            self._reconsidered = True
            with self._db.write_tx() as conn:
                look = governor.Look(conn, self._settings.lane)
                governor.reconsider(conn, look, self._terms(), self._memory)
        return self.ended_by is None

    def admit(self, skip: list[int]) -> int | None:
        """The next job that may start, with the lane freed for it; None when there is none.

        Each one that may not is put off with its reason, and the next one is asked.
        """
        while True:
            with self._db.read() as conn:
                candidate = governor.next_candidate(conn, skip)
                if candidate is None:
                    return None
                ruling = self._judge(conn, candidate)
            deferral = ruling.deferral or self._free_lane()
            if deferral is None and self._settings.resident_stop_cmd is not None:
                # Again, now that it can be measured what the resident model gave back.
                with self._db.read() as conn:
                    ruling = self._judge(conn, candidate)
                deferral = ruling.deferral
            if deferral is None:
                self._ruling = ruling
                return int(candidate["id"])
            with self._db.write_tx() as conn:
                self._put_off(conn, candidate["id"], deferral, ruling.numbers)

    def begin(self, conn: Connection, claim: Claim) -> None:
        """In the claim's transaction: hold what the attempt is expected to use."""
        assert self._ruling is not None, "a claim follows an admission"
        now = self._clock()
        meter = ledger.Meter(
            self._lease.lane,
            claim.job_id,
            claim.attempt,
            self._settings.price_usd_h,
            days_of(conn, self._lease.lane),
            actor(),
        )
        ledger.reserve(conn, meter, self._ruling.expected.seconds, at=now)

    def brake(self, claim: Claim) -> Callable[[], Abort | None]:
        """What counts the claimed attempt's use, and says when it must stop."""
        self._free_before_gb = self._host.free_gb()
        self._meter = LaneMeter(
            self._lease,
            Running(claim.job_id, claim.attempt, actor()),
            obeyed=self._obeyed,
            energy=EnergyCounter(device_of(self._settings.lane)).joules,
            clock=self._clock,
        )
        return self._meter.look

    def after(self, settled: Settled) -> None:
        """Behind an attempt: its memory is back, a job that the cap stopped waits for the day."""
        self._arbiter.await_memory(self._free_before_gb)
        stopped_by = self._meter.tripped if self._meter else None
        if not settled.later or stopped_by is not AbortReason.BUDGET:
            return
        with self._db.write_tx() as conn:
            deferral = governor.over_cap_now(conn, self._terms())
            self._put_off(conn, settled.job_id, deferral, {})

    def hand_back(self) -> None:
        """Nothing runs and nothing is about to: the resident model gets the lane."""
        if owed(self._db) and not self._arbiter.restore():
            _LOG.warning("the resident model is not up; the next drain tries again")

    def conclude(
        self, *, ran: Sequence[Settled], rescued: Sequence[Settled], interrupted: bool
    ) -> None:
        """What the drain came to, for the report; the same again is written once."""
        detail = "the drain ended: it was asked to end, or the queue is paused"
        if not interrupted:
            detail = decisions.NOTHING_MORE
            if self.ended_by:
                detail = f"the drain ended: {self.ended_by.detail}"
        began = len(ran) + len(rescued) > 0
        note = decisions.record if began else decisions.record_once
        with self._db.write_tx() as conn:
            note(
                conn,
                self._lease.lane,
                decisions.DRAIN,
                detail,
                actor=actor(),
                rule=self.ended_by.reason if self.ended_by else None,
                numbers={
                    "scheduled": self._scheduled,
                    "ran": [settled.job_id for settled in ran],
                    "rescued": [settled.job_id for settled in rescued],
                },
                at=self._clock(),
            )
            self.night_is_over = not interrupted and not self._more_tonight(conn)

    # --- inside ---

    def _more_tonight(self, conn: Connection) -> bool:
        """Whether a job that was put off may still start before the hours are over."""
        if self.ended_by is not None:
            return False
        now = self._clock()
        end = self._obeyed.closes_at(now) if self._obeyed else None
        if end is None:
            end = night_at(now, zone_of(conn, self._lease.lane)).end
        soon = select(job.c.id).where(text(DEFERRED), job.c.next_eligible_at < end).limit(1)
        return conn.execute(soon).first() is not None

    def _terms(self) -> Terms:
        return Terms(self._settings, self._obeyed, self._clock())

    def _judge(self, conn: Connection, candidate: RowMapping) -> Ruling:
        look, terms = governor.Look(conn, self._settings.lane), self._terms()
        try:
            return governor.judge(look, terms, candidate, self._memory)
        except (NightlaneError, SQLAlchemyError):
            raise
        except Exception:  # noqa: BLE001 - a row or a kind that breaks fails by name as it begins
            _LOG.exception("job %d cannot be judged", candidate["id"])
            return governor.unjudged(terms)

    def _memory(self) -> Memory:
        return memory_of(self._db)

    def _free_lane(self) -> Deferral | None:
        """A resident model that does not go is not asked again by this drain for a while."""
        if self._stuck is not None and (self._stuck.until or 0.0) > self._clock():
            return self._stuck
        found = self._arbiter.free()
        if found is not None:
            self.hand_back()
            found = found._replace(until=self._clock() + governor.again_s(self._terms()))
        self._stuck = found
        return found

    def _put_off(
        self, conn: Connection, job_id: int, deferral: Deferral, numbers: dict[str, object]
    ) -> None:
        self.put_off[job_id] = PutOff(job_id, deferral.reason, deferral.detail)
        governor.put_off(
            conn,
            self._lease.lane,
            job_id,
            deferral,
            numbers=numbers,
            actor=actor(),
            now=self._clock(),
        )
