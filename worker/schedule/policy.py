"""The policy (autonomy): what the operator allowed the lane to do by itself.

Armed once, kept in the database, obeyed by scheduled drains alone: a person's `cockpit drain` is
an order and never asks. Answers whether jobs may be started now, and if not, why and until when.
Knows no job's size or price; that is the governor's.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from sqlalchemy import (
    Connection,
    bindparam,
    delete,
    insert,
    select,
)

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.problems import problems_of
from worker.amounts import Amount, Count, dollars, exact
from worker.budget import ledger
from worker.clock.moments import FURTHEST_DAYS, start_time
from worker.clock.window import CapDays, Span, Window, zone_named
from worker.db import decisions
from worker.db.connection import Database
from worker.db.tables import attempt, lane, lane_event, policy
from worker.db.zone import days_of
from worker.queue.deferral import Deferral, Reason
from worker.queue.states import State

ARMED, DISARMED = "armed", "disarmed"
NUMBERS = frozenset({"interval_min", "cap_usd", "cap_gpu_hours", "max_failures", "expires_at"})
"""Terms that are numbers, for doors that have text alone."""
_ENDS = (State.SUCCEEDED, State.FAILED, State.ABORTED)
"""Ends that say something about the next job; a cancel is a person's word."""


_T = TypeVar("_T")


class Policy(BaseModel):
    """What a person sets. The text under a field is its help."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    interval_min: Amount = Field(30.0, ge=0.02, le=7 * 24 * 60)
    """Minutes between two looks at the queue."""
    window: str | None = None
    """Hours in which jobs may run, e.g. 22:00-07:00; all hours by default."""
    days: str | None = None
    """Weekdays on which the window begins, e.g. mon-fri,sun; every day by default."""
    zone: str = Field("", validate_default=True)
    """Time zone of window, days and caps, e.g. Europe/Berlin; the machine's by default."""
    cap_usd: Amount | None = Field(None, ge=0, le=10_000_000)
    """Most US dollars for one day, or for one night over midnight; 0 lets only free runs start; no
    cap by default."""
    cap_gpu_hours: Amount | None = Field(None, ge=0, le=10_000)
    """Most hours of the lane for one day, or for one night over midnight; no cap by default."""
    max_failures: Count | None = Field(None, ge=1)
    """Failures in a row after which nothing more is started; no limit by default."""
    expires_at: Amount | None = None
    """Moment after which nothing more is started, Unix seconds; never by default."""

    @field_validator("zone")
    @classmethod
    def _zone(cls, zone: str) -> str:
        return _of_one_field(lambda: zone_named(zone or None)).key

    @field_validator("window")
    @classmethod
    def _window(cls, window: str | None) -> str | None:
        _of_one_field(lambda: Window.parse(window))
        return window

    @field_validator("days")
    @classmethod
    def _days(cls, days: str | None) -> str | None:
        _of_one_field(lambda: Window.parse(None, days))
        return days

    def hours(self) -> Window:
        """The window as a rule."""
        return Window.parse(self.window, self.days)

    def cap_days(self) -> CapDays:
        """The days that its caps are counted in."""
        return CapDays(zone_named(self.zone), self.hours())

    def span_at(self, moment: float) -> Span | None:
        """The hours in which jobs may run around a moment; None outside of them."""
        return self.hours().open_at(moment, zone_named(self.zone))

    def opens_at(self, moment: float) -> float:
        """`moment` itself while jobs may run, else when they may again."""
        return self.hours().next_opening(moment, zone_named(self.zone))

    def closes_at(self, moment: float) -> float | None:
        """When a run must stop that runs at `moment`; None = never. The moment itself outside."""
        ends = [] if self.expires_at is None else [self.expires_at]
        if not self.hours().always:
            span = self.span_at(moment)
            ends.append(moment if span is None else span.closes)
        return min(ends, default=None)

    def changes_at(self, moment: float) -> float | None:
        """When jobs may run and may no more change places next; None = never."""
        opens = self.opens_at(moment)
        ends = [] if self.expires_at is None else [self.expires_at]
        turn = opens if opens > moment else self.closes_at(moment)
        return min((at for at in (*ends, turn) if at is not None and at > moment), default=None)


class Standing(Policy):
    """A policy as it stands in the database."""

    lane: str
    armed: bool
    changed_at: float
    changed_by: str
    cron_line: str | None = None
    armed_at_fence: int = 0
    """The lane's fence when it was armed: failures under a later one count."""

    def terms(self) -> Policy:
        """What the person set, alone."""
        return Policy(**{name: getattr(self, name) for name in Policy.model_fields})


def parse(raw: Mapping[str, Any], now: float) -> Policy:
    """The one way from what people write to a policy.

    `expires` may be a moment like a job's start time: `2030-12-01 07:00`, `+10h`; without a zone
    of its own it is one of the policy's. Raises ConfigError with every problem found.
    """
    given = {key: value for key, value in raw.items() if value is not None}
    expires = given.pop("expires", None)
    problems: list[ConfigProblem] = []
    if expires is not None and "expires_at" in given:
        remedy = "keep one of expires and expires_at"
        problems.append(ConfigProblem("expires_at", None, "is said twice", remedy))
    terms: Policy | None = None
    try:
        terms = Policy.model_validate(given)
    except ValidationError as error:
        problems += problems_of(error, Policy)
    try:
        ends = None if expires is None else _expiry(expires, now, terms.zone if terms else None)
    except ConfigError as error:
        problems += error.problems
    if terms and terms.expires_at is not None and expires is None:
        problems += _wrong_end(terms.expires_at, now)
    if terms is None or problems:
        raise ConfigError(problems)
    return terms if expires is None else terms.model_copy(update={"expires_at": ends})


def _wrong_end(moment: float, now: float) -> list[ConfigProblem]:
    """What is wrong with a moment in Unix seconds after which nothing more is to be started."""
    if moment <= now:
        remedy = "give a later moment, in Unix seconds, or leave it out"
        return [ConfigProblem("expires_at", moment, "is over already", remedy)]
    if moment > now + FURTHEST_DAYS * 86400:
        remedy = "give a moment within ten years, in Unix seconds"
        return [ConfigProblem("expires_at", moment, "is too far away", remedy)]
    return []


def arm(
    db: Database, terms: Policy, *, actor: str, now: float, cron_line: str | None = None
) -> Standing:
    """Write the policy; what was armed before is replaced."""
    return _write(
        db,
        Standing(
            **terms.model_dump(),
            lane=db.settings.lane,
            armed=True,
            changed_at=now,
            changed_by=actor,
            cron_line=cron_line,
        ),
        ARMED,
        f"a look every {exact(terms.interval_min)} min, {described(terms)}",
    )


def as_if_armed(conn: Connection, lane_name: str, terms: Policy, now: float) -> Standing:
    """How these terms would stand if they were armed at this moment; writes nothing."""
    return Standing(
        **terms.model_dump(),
        lane=lane_name,
        armed=True,
        changed_at=now,
        changed_by="",
        armed_at_fence=_fence(conn, lane_name),
    )


def disarm(db: Database, *, actor: str, now: float, why: str = "switched off") -> Standing | None:
    """Switch autonomy off; its terms stay to be seen. None when none was ever set."""
    before = standing(db)
    if before is None:
        return None
    update = {"armed": False, "changed_at": now, "changed_by": actor, "cron_line": None}
    return _write(db, before.model_copy(update=update), DISARMED, why)


def standing(db: Database) -> Standing | None:
    """The lane's policy, armed or not; None when none was ever set."""
    with db.read() as conn:
        return standing_in(conn, db.settings.lane)


def standing_in(conn: Connection, lane: str) -> Standing | None:
    """The same inside a transaction."""
    row = conn.execute(select(policy).where(policy.c.lane == lane)).mappings().one_or_none()
    return None if row is None else Standing.model_validate(row)


class InForce(NamedTuple):
    """A stretch of time in which one policy was armed, Unix seconds."""

    begin: float
    end: float
    terms: Policy


_SWITCHES = (
    select(lane_event.c.at, lane_event.c.what, lane_event.c.numbers)
    .where(
        lane_event.c.lane == bindparam("of_lane"),
        lane_event.c.what.in_((ARMED, DISARMED)),
        lane_event.c.at < bindparam("until"),
    )
    .order_by(lane_event.c.at, lane_event.c.id)
)


def in_force(db: Database, begin: float, end: float) -> list[InForce]:
    """The policies that were armed between two moments, as the audit tells; oldest first."""
    with db.read() as conn:
        rows = conn.execute(_SWITCHES, {"of_lane": db.settings.lane, "until": end}).all()
    found = []
    for row, until in zip(rows, [*(row.at for row in rows[1:]), end], strict=False):
        if row.what == ARMED and until > begin:
            found.append(InForce(max(begin, row.at), until, Policy.model_validate(row.numbers)))
    return found


def withheld(db: Database, found: Standing | None, now: float) -> Deferral | None:
    """Why a scheduled drain may start nothing now; None = it may."""
    with db.read() as conn:
        return withheld_in(conn, found, now)


def withheld_in(conn: Connection, found: Standing | None, now: float) -> Deferral | None:
    """The same inside a transaction."""
    if found is None or not found.armed:
        return Deferral(Reason.NOT_ARMED, "nothing starts jobs by itself; run: cockpit drain")
    if found.expires_at is not None and now >= found.expires_at:
        detail = "the policy has run out; set it again with: cockpit autonomy on"
        return Deferral(Reason.NOT_ARMED, detail)
    if _failed_too_often(conn, found):
        detail = (
            f"{found.max_failures} runs failed in a row; look at them, then arm it again with: "
            "cockpit autonomy on"
        )
        return Deferral(Reason.NOT_ARMED, detail)
    opens = found.opens_at(now)
    if opens > now:
        return Deferral(Reason.OUTSIDE_WINDOW, f"jobs run {_hours_in_words(found)}", opens)
    return None


def described(terms: Policy) -> str:
    """The terms in one line: `22:00-07:00 mon-fri (Europe/Berlin), at most $5 a day`."""
    parts = [f"{_hours_in_words(terms)} ({terms.zone})"]
    if terms.cap_usd is not None:
        parts.append(f"at most {dollars(terms.cap_usd)} a day")
    if terms.cap_gpu_hours is not None:
        parts.append(f"at most {exact(terms.cap_gpu_hours)} lane hours a day")
    if terms.max_failures is not None:
        parts.append(f"until {terms.max_failures} failures in a row")
    if terms.expires_at is not None:
        # In the zone that stands before it.
        ends = datetime.datetime.fromtimestamp(terms.expires_at, zone_named(terms.zone))
        parts.append(f"until {ends:%Y-%m-%d %H:%M}")
    return ", ".join(parts)


def _expiry(text: str, now: float, zone: str | None) -> float | None:
    try:
        return start_time(text, now, partial(zone_named, zone), if_past="give a later time")
    except ConfigError as error:
        renamed = [dataclasses.replace(problem, field="expires") for problem in error.problems]
        raise ConfigError(renamed) from None


def _of_one_field(check: Callable[[], _T]) -> _T:
    """What `check` finds, its refusal as one that stands beside those of other fields."""
    try:
        return check()
    except ConfigError as error:
        found = error.problems[0]
        raise ValueError(f"{found.problem}; {found.remedy}") from None


def _hours_in_words(terms: Policy) -> str:
    if terms.hours().always:
        return "at all hours"
    return " ".join(filter(None, (terms.window or "all day", terms.days)))


_LAST_ENDS = (
    select(attempt.c.outcome)
    .where(
        attempt.c.lane == bindparam("of_lane"),
        attempt.c.fence > bindparam("since"),
        attempt.c.outcome.in_(_ENDS),
    )
    # By the fence, which only grows: a clock may have been wrong when it was armed, or since.
    .order_by(attempt.c.fence.desc())
    .limit(bindparam("most"))
)


def _failed_too_often(conn: Connection, found: Standing) -> bool:
    """Whether the last attempts that were begun since the policy was set all failed."""
    if found.max_failures is None:
        return False
    asked = {"of_lane": found.lane, "since": found.armed_at_fence, "most": found.max_failures}
    ends = conn.execute(_LAST_ENDS, asked).scalars().all()
    return len(ends) == found.max_failures and State.SUCCEEDED not in ends


def _fence(conn: Connection, lane_name: str) -> int:
    """That of the lane's newest attempt."""
    begun = conn.execute(select(lane.c.fence).where(lane.c.name == lane_name))
    return begun.scalar_one_or_none() or 0


def _write(db: Database, found: Standing, what: str, detail: str) -> Standing:
    with db.write_tx() as conn:
        before = days_of(conn, found.lane)
        if what == ARMED:
            found = found.model_copy(update={"armed_at_fence": _fence(conn, found.lane)})
        conn.execute(delete(policy).where(policy.c.lane == found.lane))
        conn.execute(insert(policy).values(**found.model_dump()))
        ledger.move_today(
            conn,
            found.lane,
            before,
            found.cap_days(),
            actor=found.changed_by,
            now=found.changed_at,
        )
        decisions.record(
            conn,
            found.lane,
            what,
            detail,
            actor=found.changed_by,
            numbers=found.terms().model_dump(),
            at=found.changed_at,
        )
    return found
