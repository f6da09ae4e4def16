"""The preview (simulation of a night): what would run, in which order, when, at which price.

Goes through the queue as a scheduled drain would, with the clock put forward by what each job is
expected to take. A guess, and it says from what: it starts nothing and writes nothing. What the
queue does not know (a crash, a job that comes later, memory that others take) it does not know.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection, RowMapping, select, text

from worker.database import Database
from worker.jobs.deferral import Deferral, Reason
from worker.jobs.pausing import pause_of
from worker.jobs.tables import job
from worker.lane import governor, policy
from worker.lane.governor import Memory, Ruling, Terms
from worker.lane.ledger import NOTHING, SECONDS_PER_HOUR, Spent
from worker.lane.window import local_day, zone_named

MOST_JOBS = 200


class Step(BaseModel):
    """One queued job in tonight's order. Times are Unix seconds, None where nobody knows."""

    model_config = ConfigDict(frozen=True)

    job_id: int
    name: str
    kind: str
    starts_at: float | None
    finishes_at: float | None
    stops_at: float | None
    """When the window, or the day's cap, ends it before it is done; it goes on later."""
    expected_s: float
    expected_by: str
    """same · kind · guess: what the seconds are known from."""
    cost_usd: float
    need_gb: float | None
    need_by: str | None
    parts_gb: dict[str, float] | None
    """The kind's own estimate, before any correction."""
    reason: str | None
    """Why it does not run tonight, in one word."""
    detail: str | None
    next_eligible_at: float | None


class Preview(BaseModel):
    """A night before it happens."""

    model_config = ConfigDict(frozen=True)

    made_at: float
    starts_at: float | None
    """When the first job may start; None = nothing starts by itself."""
    closes_at: float | None
    reason: str | None
    detail: str | None
    free_gb: float | None
    floor_gb: float
    spent_usd: float
    expected_usd: float
    steps: list[Step]


def preview(
    db: Database,
    now: float,
    memory: Callable[[], Memory],
    *,
    by_hand: bool = False,
    free_at: float | None = None,
    limit: int = MOST_JOBS,
) -> Preview:
    """Tonight, from the queue and the policy as they are; of the first `limit` queued jobs.

    `by_hand`: what a person's drain would do, which asks no policy. `free_at`: when the job that
    runs now is expected to leave the lane.
    """
    found = None if by_hand else policy.standing(db)
    held = None if by_hand else policy.withheld(db, found, now)
    starts = None if held is not None and held.until is None else (held.until if held else now)
    if starts is not None and free_at is not None and free_at > starts:
        starts = found.opens_at(free_at) if found is not None else free_at
    room = memory()
    with db.read() as conn:
        if pause_of(conn) is not None:
            starts, held = None, Deferral(Reason.PAUSED, "the queue is paused; run: cockpit resume")
        today = governor.spent_today(conn, Terms(db.settings, found, now))
        night = _Night(conn, Terms(db.settings, found, now), room, starts)
        steps = [night.step(row) for row in _rows(conn, limit)]
    closes = found.closes_at(starts) if found is not None and starts is not None else None
    return Preview(
        made_at=now,
        starts_at=starts,
        closes_at=closes,
        reason=held.reason if held else None,
        detail=held.detail if held else None,
        free_gb=room.free_gb,
        floor_gb=room.floor_gb,
        spent_usd=today.usd,
        expected_usd=sum(step.cost_usd for step in steps if step.starts_at is not None),
        steps=steps,
    )


class _Night:
    """The lane while the clock is put forward."""

    def __init__(
        self, conn: Connection, terms: Terms, memory: Memory, starts: float | None
    ) -> None:
        self._look = governor.Look(conn, terms.settings.lane)
        self._terms = terms
        self._memory = memory
        self._at = starts
        self._planned: dict[datetime.date, Spent] = {}

    def step(self, row: RowMapping) -> Step:
        """The next job in the order of claims."""
        moment = self._terms.now if self._at is None else self._at
        terms = self._terms._replace(now=moment)
        planned = self._planned.get(self._day(moment), NOTHING)
        ruling = governor.judge(self._look, terms, row, lambda: self._memory, planned)
        deferral = self._own(row, moment) or ruling.deferral
        if deferral is not None or self._at is None:
            return self._put_off(row, ruling, deferral)
        return self._run(row, ruling, moment)

    def _own(self, row: RowMapping, moment: float) -> Deferral | None:
        """What the job waits for by itself; the governor's own earlier words are judged anew."""
        if row["defer_reason"] is None or row["defer_reason"] in governor.OURS:
            return None
        until = row["next_eligible_at"]
        if until is not None and until <= moment:
            return None
        return Deferral(Reason(row["defer_reason"]), row["defer_detail"] or "", until)

    def _run(self, row: RowMapping, ruling: Ruling, begins: float) -> Step:
        seconds = ruling.expected.seconds
        ends = begins + seconds
        found = self._terms.standing
        closes = found.closes_at(begins) if found else None
        stops = closes if closes is not None and closes < ends else None
        used = (stops or ends) - begins
        day = self._day(begins)
        cost = used / SECONDS_PER_HOUR * self._terms.settings.price_usd_h
        before = self._planned.get(day, NOTHING)
        self._planned[day] = Spent(before.usd + cost, before.seconds + used)
        self._at = stops or ends
        if stops is not None and found is not None:
            self._at = found.opens_at(stops)
        return _shown(
            row, ruling, starts=begins, ends=None if stops else ends, stops=stops, cost=cost
        )

    def _put_off(self, row: RowMapping, ruling: Ruling, deferral: Deferral | None) -> Step:
        cost = ruling.expected.seconds / SECONDS_PER_HOUR * self._terms.settings.price_usd_h
        return _shown(row, ruling, deferral=deferral, cost=cost)

    def _day(self, moment: float) -> datetime.date:
        zone = zone_named(self._terms.standing.zone if self._terms.standing else None)
        return local_day(moment, zone)


def _rows(conn: Connection, limit: int) -> list[RowMapping]:
    """Queued jobs in the order of claims, those that wait for something in their place."""
    statement = (
        select(job)
        .where(text("state = 'queued'"))
        .order_by(job.c.priority.desc(), job.c.rank, job.c.id)
        .limit(min(limit, MOST_JOBS))
    )
    return list(conn.execute(statement).mappings())


def _shown(
    row: RowMapping,
    ruling: Ruling,
    *,
    cost: float,
    starts: float | None = None,
    ends: float | None = None,
    stops: float | None = None,
    deferral: Deferral | None = None,
) -> Step:
    need = ruling.need
    return Step(
        job_id=row["id"],
        name=row["name"],
        kind=row["kind"],
        starts_at=starts,
        finishes_at=ends,
        stops_at=stops,
        expected_s=ruling.expected.seconds,
        expected_by=ruling.expected.basis,
        cost_usd=cost,
        need_gb=need.gb if need else None,
        need_by=need.basis if need else None,
        parts_gb=need.estimate.parts() if need and need.estimate else None,
        reason=deferral.reason if deferral else None,
        detail=deferral.detail if deferral else None,
        next_eligible_at=deferral.until if deferral else None,
    )
