"""The governor (admission control): may this queued job start now? Cap, memory, program.

Asked for one job after the other, in the order in which they would be claimed:

1. OVER_DAILY_CAP   spent today + held by running jobs + expected cost > cap (scheduled drains only)
2. OOM_ENVELOPE     it needs more memory than is free, with what the resident model will give back
3. LANE_BIN_ABSENT  it starts a server of models, and the program for that is not installed

A no is a deferral of that job alone, with its numbers; those behind it are asked all the same.
Starts nothing and stops nothing.
"""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

from sqlalchemy import Connection, RowMapping, select, text, update

from engine.contract.registry import make_smaller
from engine.contract.run_dir import AbortReason
from worker.amounts import dollars, exact
from worker.budget import ledger
from worker.budget.ledger import NOTHING, SECONDS_PER_HOUR, Spent
from worker.clock.window import CapDays, zone_named
from worker.db import decisions
from worker.db.changes import announce_moved
from worker.db.tables import CLAIMABLE, job
from worker.estimate.envelope import Need, need_of, needs_server_program
from worker.estimate.forecast import Expected, expected
from worker.estimate.history import History
from worker.queue.deferral import FREE, Deferral, Reason, columns_of
from worker.schedule.policy import Standing
from worker.settings import WorkerSettings

OURS = (
    Reason.OVER_DAILY_CAP,
    Reason.OOM_ENVELOPE,
    Reason.LANE_BIN_ABSENT,
    Reason.RESIDENT_STUCK,
)
"""Deferrals that only this module and the arbiter write."""

JUDGED = (Reason.OVER_DAILY_CAP, Reason.OOM_ENVELOPE, Reason.LANE_BIN_ABSENT)
"""Those that `judge` comes to, which costs nothing to ask again."""

AGAIN_S = 1800.0
"""Until a job that did not fit is looked at again when no policy names an interval."""


class Memory(NamedTuple):
    """What the machine has, in GB; None where it cannot be told."""

    free_gb: float | None
    total_gb: float | None
    floor_gb: float
    """What must stay free."""
    returns_gb: float | None = 0.0
    """What the resident model gives back when it is stopped; None = nobody has measured it."""


class Terms(NamedTuple):
    """What the governor goes by at one moment."""

    settings: WorkerSettings
    standing: Standing | None
    """The policy to obey; None for a person's order, which asks no cap."""
    now: float


class Ruling(NamedTuple):
    """The answer for one job."""

    deferral: Deferral | None
    """None = it may start."""
    numbers: dict[str, Any]
    """What was compared."""
    expected: Expected
    need: Need | None


_JUDGED_BY = (
    job.c.id,
    job.c.kind,
    job.c.config,
    job.c.config_hash,
    job.c.result,
    job.c.clone_of,
)
"""What `judge` reads of a job."""
_NEXT = (
    select(*_JUDGED_BY)
    .where(text(CLAIMABLE))
    .order_by(job.c.priority.desc(), job.c.rank, job.c.id)
    .limit(1)
)


def next_candidate(conn: Connection, skip: list[int]) -> RowMapping | None:
    """Of the job that a claim would take, beside those in `skip`, what `judge` reads."""
    statement = _NEXT.where(job.c.id.not_in(skip)) if skip else _NEXT
    return conn.execute(statement).mappings().one_or_none()


class Look:
    """The rows that every ruling of one transaction goes by, each read once."""

    def __init__(self, conn: Connection, lane: str) -> None:
        self.history = History(conn)
        self._conn = conn
        self._lane = lane
        self._spent: dict[datetime.date, Spent] = {}

    def spent(self, day: datetime.date) -> Spent:
        """What a local day has cost so far."""
        if day not in self._spent:
            self._spent[day] = ledger.spent(self._conn, self._lane, day)
        return self._spent[day]

    @cached_property
    def held(self) -> Spent:
        """What running attempts have reserved and not used yet."""
        return ledger.held(self._conn, self._lane)


def judge(
    look: Look,
    terms: Terms,
    candidate: RowMapping,
    memory: Callable[[], Memory],
    planned: Spent = NOTHING,
) -> Ruling:
    """Whether a queued job may start. `memory` is read only when it is needed.

    `planned`: use of the same day that is foreseen before this job, and stands in no row yet.
    """
    took = expected(look.history, terms.settings, candidate)
    need = need_of(look.history, candidate)
    numbers: dict[str, Any] = {"expected_s": round(took.seconds, 1), "expected_by": took.basis}
    deferral = _over_cap(look, terms, took, planned, numbers)
    if deferral is None and need is not None:
        deferral = _too_large(terms, need, memory(), numbers, make_smaller(candidate["kind"]))
    if deferral is None and needs_server_program(candidate):
        deferral = _no_program(terms, numbers)
    return Ruling(deferral, numbers, took, need)


def unjudged(terms: Terms) -> Ruling:
    """For a job of which nothing can be known before it begins."""
    seconds = terms.settings.estimate_hours * SECONDS_PER_HOUR
    return Ruling(None, {}, Expected(seconds, "guess", 0), None)


def put_off(
    conn: Connection,
    lane: str,
    job_id: int,
    deferral: Deferral,
    *,
    numbers: dict[str, Any],
    actor: str,
    now: float,
) -> bool:
    """Write a deferral on a job that still waits; False when somebody was faster."""
    waiting = update(job).where(job.c.id == job_id, text(CLAIMABLE))
    if conn.execute(waiting.values(columns_of(deferral))).rowcount != 1:
        return False
    decisions.record_once(
        conn,
        lane,
        decisions.DEFER,
        deferral.detail,
        actor=actor,
        job_id=job_id,
        rule=deferral.reason,
        numbers=numbers | {"until": deferral.until},
        at=now,
    )
    announce_moved(conn, job_id)
    return True


def reconsider(
    conn: Connection, look: Look, terms: Terms, memory: Callable[[], Memory]
) -> list[int]:
    """Free the put-off jobs for which another answer is true by now, whatever changed it: a cap,
    the price, what was spent, what jobs of their kind take, the memory. Returns their ids.
    """
    waiting = select(*_JUDGED_BY, job.c.defer_reason, job.c.defer_detail).where(
        text("state = 'queued'"), job.c.defer_reason.in_(JUDGED)
    )
    freed = []
    for row in conn.execute(waiting).mappings().all():
        found = judge(look, terms, row, memory).deferral
        if found is not None and not _changed(found, row):
            continue
        conn.execute(update(job).where(job.c.id == row["id"]).values(FREE))
        announce_moved(conn, row["id"])
        freed.append(int(row["id"]))
    return freed


def _changed(found: Deferral, row: RowMapping) -> bool:
    """Whether another reason holds. How much memory is free changes all the time, and what a cap
    has come to only when something was spent or set.
    """
    if found.reason != row["defer_reason"]:
        return True
    return found.reason == Reason.OVER_DAILY_CAP and found.detail != row["defer_detail"]


def ask_again(conn: Connection, reasons: tuple[Reason, ...] = OURS) -> None:
    """Free the jobs that were put off for `reasons`: a person orders, or the terms changed."""
    waiting = update(job).where(text("state = 'queued'"), job.c.defer_reason.in_(reasons))
    for job_id in conn.execute(waiting.values(FREE).returning(job.c.id)).scalars().all():
        announce_moved(conn, job_id)


def stop_reason(terms: Terms, today: Spent, price_usd_h: float) -> tuple[AbortReason, str] | None:
    """Why a running job must stop now: the day's cap is reached, or the window has closed."""
    found = terms.standing
    if found is None:
        return None
    if found.cap_usd is not None and price_usd_h > 0 and today.usd >= found.cap_usd:
        return AbortReason.BUDGET, f"${today.usd:.2f} of {dollars(found.cap_usd)} is spent today"
    hours = today.seconds / SECONDS_PER_HOUR
    if found.cap_gpu_hours is not None and hours >= found.cap_gpu_hours:
        return (
            AbortReason.BUDGET,
            f"{hours:.2f} of {exact(found.cap_gpu_hours)} lane hours are used today",
        )
    closes = found.closes_at(terms.now)
    if closes is not None and terms.now >= closes:
        return AbortReason.WINDOW, "the hours in which jobs may run are over"
    return None


def over_cap_now(conn: Connection, terms: Terms) -> Deferral:
    """The deferral of a job that the cap has stopped."""
    today = spent_today(conn, terms)
    assert terms.standing is not None, "only a policy has a cap"
    return Deferral(
        Reason.OVER_DAILY_CAP,
        f"today's cap is reached: {_so_far(terms.standing, today)}; it goes on tomorrow",
        _tomorrow(terms.standing, terms.now),
    )


def spent_today(conn: Connection, terms: Terms) -> Spent:
    """What the local day has cost so far."""
    return ledger.spent(conn, terms.settings.lane, cap_day(terms))


def cap_day(terms: Terms) -> datetime.date:
    """The day that use at this moment counts for."""
    days = terms.standing.cap_days() if terms.standing else CapDays(zone_named(None))
    return days.day_of(terms.now)


# --- the three questions ---


def _over_cap(
    look: Look, terms: Terms, took: Expected, planned: Spent, numbers: dict[str, Any]
) -> Deferral | None:
    found, price = terms.standing, terms.settings.price_usd_h
    if found is None or (found.cap_usd is None and found.cap_gpu_hours is None):
        return None
    used, waiting = look.spent(cap_day(terms)), look.held
    today = Spent(used.usd + planned.usd, used.seconds + planned.seconds)
    cost = took.seconds / SECONDS_PER_HOUR * price
    hours = (today.seconds + waiting.seconds + took.seconds) / SECONDS_PER_HOUR
    usd = today.usd + waiting.usd + cost
    numbers |= {
        "spent_usd": round(today.usd, 4),
        "held_usd": round(waiting.usd, 4),
        "expected_usd": round(cost, 4),
        "cap_usd": found.cap_usd,
        "used_hours": round(today.seconds / SECONDS_PER_HOUR, 4),
        "expected_hours": round(took.seconds / SECONDS_PER_HOUR, 4),
        "cap_gpu_hours": found.cap_gpu_hours,
    }
    # What alone is more than a day's cap fits into no day: it waits for a person.
    until: float | None = _tomorrow(found, terms.now)
    if found.cap_usd is not None and usd > found.cap_usd:
        until = None if cost > found.cap_usd else until
        held = f"${waiting.usd:.2f} is reserved for what runs, " if waiting.usd > 0 else ""
        detail = (
            f"{_usd_so_far(found.cap_usd, today)}, {held}and this run is expected to cost "
            f"${cost:.2f}; "
            "raise the cap with: cockpit autonomy on, or run it now with: cockpit drain"
        )
        return Deferral(Reason.OVER_DAILY_CAP, detail, until)
    if found.cap_gpu_hours is not None and hours > found.cap_gpu_hours:
        until = None if took.seconds / SECONDS_PER_HOUR > found.cap_gpu_hours else until
        reserved = waiting.seconds / SECONDS_PER_HOUR
        held = f"{reserved:.2f} are reserved for what runs, " if reserved > 0 else ""
        detail = (
            f"{_hours_so_far(found.cap_gpu_hours, today)}, {held}and this run is expected to take "
            f"{took.seconds / SECONDS_PER_HOUR:.2f} h; "
            "raise the cap with: cockpit autonomy on, or run it now with: cockpit drain"
        )
        return Deferral(Reason.OVER_DAILY_CAP, detail, until)
    return None


def _so_far(found: Standing, today: Spent) -> str:
    """Of each cap there is."""
    told = []
    if found.cap_usd is not None:
        told.append(_usd_so_far(found.cap_usd, today))
    if found.cap_gpu_hours is not None:
        told.append(_hours_so_far(found.cap_gpu_hours, today))
    return " and ".join(told)


def _usd_so_far(cap: float, today: Spent) -> str:
    return f"${today.usd:.2f} of today's {dollars(cap)} is spent"


def _hours_so_far(cap: float, today: Spent) -> str:
    return f"{today.seconds / SECONDS_PER_HOUR:.2f} of today's {exact(cap)} lane hours are used"


def _tomorrow(found: Standing, now: float) -> float:
    """When the next day's cap counts, and the window is open."""
    days = found.cap_days()
    return found.opens_at(days.ends(days.day_of(now)))


def _too_large(
    terms: Terms, need: Need, memory: Memory, numbers: dict[str, Any], smaller: str
) -> Deferral | None:
    numbers |= {
        "need_gb": round(need.gb, 2),
        "need_by": need.basis,
        "free_gb": _rounded(memory.free_gb),
        "returns_gb": _rounded(memory.returns_gb),
        "floor_gb": round(memory.floor_gb, 2),
    }
    wanted = f"it needs {need.gb:.1f} GB ({need.basis})"
    if memory.total_gb is not None and need.gb + memory.floor_gb > memory.total_gb:
        detail = (
            f"{wanted}, and this machine has {memory.total_gb:.1f} GB, of which "
            f"{memory.floor_gb:.1f} stay free; {smaller}"
        )
        return Deferral(Reason.OOM_ENVELOPE, detail)
    if memory.free_gb is None or memory.returns_gb is None:
        return None  # measured again when the resident model is gone
    room = memory.free_gb + memory.returns_gb - memory.floor_gb
    if need.gb <= room:
        return None
    back = f" with the {memory.returns_gb:.1f} GB of the resident" if memory.returns_gb else ""
    detail = f"{wanted} and {max(0.0, room):.1f} GB may be taken{back}; end what else uses memory"
    return Deferral(Reason.OOM_ENVELOPE, detail, terms.now + again_s(terms))


def _no_program(terms: Terms, numbers: dict[str, Any]) -> Deferral | None:
    name = terms.settings.serving_program
    numbers["program"] = name
    if shutil.which(name) is not None:
        return None
    setting = "NIGHTLANE_SERVE_CMD" if terms.settings.serve_cmd else "NIGHTLANE_VLLM_BIN"
    detail = f"{name} is not installed; install it, or set {setting} to its path"
    return Deferral(Reason.LANE_BIN_ABSENT, detail, terms.now + again_s(terms))


def again_s(terms: Terms) -> float:
    """Seconds until a job that did not fit is looked at again."""
    return terms.standing.interval_min * 60 if terms.standing else AGAIN_S


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
