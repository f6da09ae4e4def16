"""The preview (simulation of a night): what would run, in which order, when, at which price.

Goes through the queue as a scheduled drain would, with the clock put forward by what each job is
expected to take. A guess, and it says from what: it starts nothing and writes nothing. What the
queue does not know (a crash, a job that comes later, memory that others take) it does not know.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection, RowMapping, select, text

from worker.budget.ledger import NOTHING, SECONDS_PER_HOUR, Spent
from worker.db.connection import Database
from worker.db.tables import job
from worker.queue.deferral import Deferral, Reason
from worker.queue.dependencies import awaited
from worker.queue.pausing import pause_of
from worker.read.holder import Holder, holder_of
from worker.schedule import governor, policy
from worker.schedule.governor import Memory, Ruling, Terms
from worker.schedule.looks import looks_of
from worker.schedule.policy import Policy, Standing
from worker.settings import WorkerSettings

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
    ends_from: float | None
    ends_to: float | None
    """Between these it ends, if it starts then and takes what the fastest and the slowest of the
    runs behind the estimate did; None where too few of them are known."""
    expected_s: float
    expected_by: str
    """same · kind · tried · guess: what the seconds are known from."""
    expected_runs: int
    """Finished runs that they are known from."""
    cost_usd: float
    need_gb: float | None
    need_by: str | None
    parts_gb: dict[str, float] | None
    """The kind's own estimate, before any correction."""
    reason: str | None
    """Why it does not run tonight, in one word."""
    detail: str | None
    next_eligible_at: float | None


class Spending(BaseModel):
    """What a night has cost at one moment of it, in US dollars; between two of them a line."""

    model_config = ConfigDict(frozen=True)

    at: float
    usd: float


class Preview(BaseModel):
    """A night before it happens."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    made_at: float
    starts_at: float | None
    """When the first job may start; None = nothing starts by itself."""
    closes_at: float | None
    ordered: bool
    """A person's drain is at work and goes on with it: it asks no window and no cap."""
    reason: str | None
    detail: str | None
    free_gb: float | None
    floor_gb: float
    spent_usd: float
    expected_usd: float
    cap_usd: float | None
    """Most for this night; None where no cap is asked."""
    capped_at: float | None
    """When what runs and what starts tonight has spent all of that; None = it does not."""
    money: list[Spending]
    """From its beginning to the end of its last job."""
    steps: list[Step]

    @property
    def tonight(self) -> list[Step]:
        """The jobs that start before it closes."""
        closes = math.inf if self.closes_at is None else self.closes_at
        return [one for one in self.steps if one.starts_at is not None and one.starts_at < closes]


def preview(
    db: Database,
    now: float,
    memory: Callable[[], Memory],
    *,
    by_hand: bool = False,
    proposed: Policy | None = None,
    resumed: bool = False,
    limit: int = MOST_JOBS,
) -> Preview:
    """Tonight, from the queue and the policy as they are; of the first `limit` queued jobs.

    Behind a job that runs now it begins when that one is expected to leave the lane. `by_hand`:
    what a person's drain would do, which asks no policy; one that is at work is taken as it is.
    `proposed`: as if the lane were armed with these terms now; `resumed`: as if nobody had paused
    the queue.
    """
    room = memory()
    with db.read() as conn:
        found = policy.standing_in(conn, db.settings.lane)
        if proposed is not None:
            found = policy.as_if_armed(conn, db.settings.lane, proposed, now)
        holder = holder_of(conn, db.settings, now)
        ordered = holder is not None and not holder.scheduled
        obeyed = None if by_hand or ordered else found
        begins = _begins(db.settings, obeyed, holder, now)
        paused = not resumed and pause_of(conn) is not None
        held = _withheld(conn, obeyed, begins, paused=paused, by_hand=by_hand or ordered)
        starts = begins if held is None else held.until
        today = governor.spent_today(conn, Terms(db.settings, found, now))
        rows = _rows(conn, limit)
        terms, parents = Terms(db.settings, obeyed, now), _parents(conn, rows)
        night = _Night(conn, terms, room, starts, parents, asks_again=by_hand and not ordered)
        if holder and holder.job_id is not None and holder.free_at is not None:
            night.ends[holder.job_id] = holder.free_at
        steps = night.steps(rows)
        money = night.money(steps, holder, now)
        cap_usd = obeyed.cap_usd if obeyed is not None else None
    return Preview(
        made_at=now,
        starts_at=starts,
        closes_at=obeyed.closes_at(starts) if obeyed is not None and starts is not None else None,
        ordered=ordered,
        reason=held.reason if held else None,
        detail=held.detail if held else None,
        free_gb=room.free_gb,
        floor_gb=room.floor_gb,
        spent_usd=today.usd,
        expected_usd=sum(step.cost_usd for step in steps if step.starts_at is not None),
        cap_usd=cap_usd,
        capped_at=None if cap_usd is None else _reached(money, cap_usd),
        money=money,
        steps=steps,
    )


def _begins(
    settings: WorkerSettings, obeyed: Standing | None, holder: Holder | None, now: float
) -> float:
    """When the lane is free; an idle one begins when somebody looks at its queue."""
    if holder is not None:
        return now if holder.free_at is None else holder.free_at
    if obeyed is None or not obeyed.armed:
        return now
    return max(now, looks_of(settings, obeyed.cron_line, now).next_at or now)


def _withheld(
    conn: Connection, obeyed: Standing | None, begins: float, *, paused: bool, by_hand: bool
) -> Deferral | None:
    """Why nothing is started at `begins`; None = the first job may be."""
    if paused:
        return Deferral(Reason.PAUSED, "the queue is paused; run: cockpit resume")
    return None if by_hand else policy.withheld_in(conn, obeyed, begins)


def _reached(money: Sequence[Spending], cap_usd: float) -> float | None:
    """When so much is spent; None = it never is, or what is spent costs nothing.

    >>> _reached([Spending(at=0, usd=1), Spending(at=10, usd=3)], 2.5)
    7.5
    """
    for before, after in pairwise(money):
        if before.usd < cap_usd <= after.usd:
            share = (cap_usd - before.usd) / (after.usd - before.usd)
            return before.at + share * (after.at - before.at)
    return None


class _Night:
    """The lane while the clock is put forward."""

    def __init__(
        self,
        conn: Connection,
        terms: Terms,
        memory: Memory,
        starts: float | None,
        parents: Mapping[int, Sequence[int]],
        *,
        asks_again: bool,
    ) -> None:
        """`asks_again`: it begins by a person's order, which frees what the governor put off."""
        self._look = governor.Look(conn, terms.settings.lane)
        self._terms = terms
        self._memory = memory
        self._at = self._begins = starts
        self._parents = parents
        self._asks_again = asks_again
        self._planned: dict[datetime.date, Spent] = {}
        self._judged: dict[int, Deferral | None] = {}
        """What the governor says by now of jobs that it put off before; the drain asks it too."""
        self.ends: dict[int, float] = {}
        """When each job is foreseen to have ended, by job."""

    def steps(self, rows: Sequence[RowMapping]) -> list[Step]:
        """Every job once: in the order in which they start, behind them those that do not.

        At each moment the first in the order of claims that waits for nothing of its own is taken.
        """
        waiting, found = list(rows), []
        terms = self._terms._replace(now=self._moment)
        for put_off in waiting:
            if put_off["defer_reason"] in governor.JUDGED:
                ruling = governor.judge(self._look, terms, put_off, lambda: self._memory)
                self._judged[put_off["id"]] = ruling.deferral
        while waiting and (row := self._next(waiting)) is not None:
            waiting.remove(row)
            found.append(self._step(row))
        return found + [self._step(row) for row in waiting]

    def money(self, steps: Sequence[Step], holder: Holder | None, now: float) -> list[Spending]:
        """What its day costs, from now on or from its beginning, job by job."""
        begins = now if self._begins is None else self._begins
        day, price_s = self._day(begins), self._terms.settings.price_usd_h / SECONDS_PER_HOUR
        usd = self._look.spent(day).usd
        found = [Spending(at=begins, usd=usd)]
        if holder is not None and holder.job_id is not None and self._day(now) == day:
            usd += max(0.0, begins - now) * price_s
            found = [Spending(at=now, usd=found[0].usd), Spending(at=begins, usd=usd)]
        for step in steps:
            ends = step.stops_at or step.finishes_at
            if step.starts_at is not None and ends is not None and self._day(step.starts_at) == day:
                found.append(Spending(at=step.starts_at, usd=usd))
                usd += step.cost_usd
                found.append(Spending(at=ends, usd=usd))
        return found

    def _next(self, waiting: Sequence[RowMapping]) -> RowMapping | None:
        """The job that is claimed next, the clock put forward to it; None when time frees none."""
        moment = self._moment
        free_at = {row["id"]: self._free_at(row) for row in waiting}
        ready = [row for row in waiting if free_at[row["id"]] <= moment]
        if ready:
            return ready[0]
        soonest = min(free_at.values())
        # A person's drain ends where nothing is ready; ticks come again.
        if self._at is None or self._terms.standing is None or soonest == math.inf:
            return None
        self._at = self._opens_at(soonest)
        return None if self._at is None else self._next(waiting)

    def _opens_at(self, moment: float) -> float | None:
        """When jobs may run from `moment` on; None = the policy has run out by then."""
        found = self._terms.standing
        if found is None:
            return moment
        opens = found.opens_at(moment)
        return opens if found.expires_at is None or opens < found.expires_at else None

    @property
    def _moment(self) -> float:
        return self._terms.now if self._at is None else self._at

    def _free_at(self, row: RowMapping) -> float:
        """When a job waits for nothing of its own any more; infinity = nobody knows."""
        begun_anew = self._asks_again and row["defer_reason"] in governor.OURS
        if row["defer_reason"] is None or begun_anew:
            return -math.inf
        if row["id"] in self._judged:
            judged = self._judged[row["id"]]
            if judged is None:
                return -math.inf
            return math.inf if judged.until is None else judged.until
        if row["defer_reason"] == Reason.WAITING_FOR:
            ends = [self.ends.get(parent, math.inf) for parent in self._parents[row["id"]]]
            return max([row["not_before"] or -math.inf, *ends])
        until = row["next_eligible_at"]
        return math.inf if until is None else float(until)

    def _step(self, row: RowMapping) -> Step:
        moment = self._moment
        terms = self._terms._replace(now=moment)
        planned = self._planned.get(self._day(moment), NOTHING)
        ruling = governor.judge(self._look, terms, row, lambda: self._memory, planned)
        deferral = self._own(row, moment) or ruling.deferral or self._over()
        if deferral is not None or self._at is None:
            return self._put_off(row, ruling, deferral)
        return self._run(row, ruling, moment)

    def _over(self) -> Deferral | None:
        """What a job is told whose turn comes when the policy has run out."""
        if self._at is not None or self._begins is None:
            return None
        return Deferral(Reason.NOT_ARMED, "what is armed ends before its turn comes")

    def _own(self, row: RowMapping, moment: float) -> Deferral | None:
        """What the job waits for by itself."""
        if self._free_at(row) <= moment:
            return None
        if judged := self._judged.get(row["id"]):
            return judged
        until = row["next_eligible_at"]
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
        self._at = self._opens_at(stops or ends)
        if stops is None:
            self.ends[row["id"]] = ends
        return _shown(
            row, ruling, starts=begins, ends=None if stops else ends, stops=stops, cost=cost
        )

    def _put_off(self, row: RowMapping, ruling: Ruling, deferral: Deferral | None) -> Step:
        cost = ruling.expected.seconds / SECONDS_PER_HOUR * self._terms.settings.price_usd_h
        return _shown(row, ruling, deferral=deferral, cost=cost)

    def _day(self, moment: float) -> datetime.date:
        return governor.cap_day(self._terms._replace(now=moment))


def _rows(conn: Connection, limit: int) -> list[RowMapping]:
    """Queued jobs in the order of claims, those that wait for something in their place."""
    statement = (
        select(job)
        .where(text("state = 'queued'"))
        .order_by(job.c.priority.desc(), job.c.rank, job.c.id)
        .limit(min(limit, MOST_JOBS))
    )
    return list(conn.execute(statement).mappings())


def _parents(conn: Connection, rows: Sequence[RowMapping]) -> dict[int, list[int]]:
    """The jobs that each of those that wait for others waits for now."""
    waiting = [row["id"] for row in rows if row["defer_reason"] == Reason.WAITING_FOR]
    return {job_id: awaited(conn, job_id) for job_id in waiting}


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
    need, took = ruling.need, ruling.expected
    least, most = took.shortest_s, took.longest_s
    return Step(
        job_id=row["id"],
        name=row["name"],
        kind=row["kind"],
        starts_at=starts,
        finishes_at=ends,
        stops_at=stops,
        ends_from=None if starts is None or least is None else starts + least,
        ends_to=None if starts is None or most is None else starts + most,
        expected_s=took.seconds,
        expected_by=took.basis,
        expected_runs=took.runs,
        cost_usd=cost,
        need_gb=need.gb if need else None,
        need_by=need.basis if need else None,
        parts_gb=need.estimate.parts() if need and need.estimate else None,
        reason=deferral.reason if deferral else None,
        detail=deferral.detail if deferral else None,
        next_eligible_at=deferral.until if deferral else None,
    )
