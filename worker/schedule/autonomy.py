"""Switching autonomy on and off, and what it says of itself: one order of steps for every door.

On: the crontab line first, the policy behind it, so that a crontab that cannot be written leaves
everything as it was. Off: the policy first, then the line, then what an unfinished night left: dead
attempts are settled, the resident model is started again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from engine.contract.errors import ConfigError
from worker.amounts import dollars, exact
from worker.attempt.rescue import rescue
from worker.attempt.runner.local import LocalRunner
from worker.attempt.writing import Settled
from worker.budget.ledger import SECONDS_PER_HOUR
from worker.clock.window import zone_named
from worker.db.connection import Database
from worker.lane.lease import LaneHeldError, hold_lane
from worker.lane.resident import owed
from worker.queue.deferral import Deferral, Reason
from worker.schedule import cron, governor, policy
from worker.schedule.admission import Admission
from worker.schedule.governor import Terms
from worker.schedule.looks import NOBODY, Looks, looks_of
from worker.schedule.policy import Policy, Standing


class SwitchedOn(NamedTuple):
    """What `on` did."""

    standing: Standing
    line: str | None
    """The crontab line for the policy; None for an interval that a crontab cannot say."""
    installed: bool


class SwitchedOff(NamedTuple):
    """What `off` did."""

    was_armed: bool
    line_removed: bool
    rescued: list[Settled]
    busy: str | None
    """Who holds the lane and will clean up after itself; None = it was done here."""
    resident_owed: bool
    """The resident model could not be started again."""


class Status(BaseModel):
    """Autonomy as it stands: Unix seconds, US dollars, the policy's local day."""

    model_config = ConfigDict(frozen=True)

    lane: str
    armed: bool
    """Whether its terms hold; not after their last moment, nor behind too many failures."""
    over: bool
    """It was armed, and ended by itself: the terms ran out, or too many runs failed."""
    may_start: bool
    """Whether a scheduled drain would start jobs now."""
    reason: str | None
    """Why not, in one word."""
    detail: str
    next_eligible_at: float | None
    terms: dict[str, Any] | None
    changed_at: float | None
    changed_by: str | None
    cron_line: str | None
    next_cron_at: float | None
    """When cron looks at the queue next; the timer of a running board may be faster."""
    looked_at_by: list[str]
    """Who looks at the queue by itself now: `serve`, `cron`; of an armed lane one should."""
    next_look_at: float | None
    """When the next of them looks; None where nobody does, or that is not known."""
    cautions: list[str]
    """What an armed lane's terms cannot do, or that nobody looks at its queue."""
    price_usd_h: float
    spent_usd: float
    used_hours: float
    resident_owed: bool


def switch_on(
    db: Database, raw: Mapping[str, Any], *, actor: str, now: float, install: bool = False
) -> SwitchedOn:
    """Arm the lane. A crontab line that was installed before is kept up to date.

    Raises ConfigError, CrontabError; nothing is changed then.
    """
    terms = policy.parse(raw, now)
    before = policy.standing(db)
    wanted = install or (before is not None and before.cron_line is not None)
    line = _line(db, terms, must=wanted)
    if wanted and line is not None:
        cron.install(db.settings, line)
    found = policy.arm(db, terms, actor=actor, now=now, cron_line=line if wanted else None)
    with db.write_tx() as conn:
        governor.ask_again(conn)
    return SwitchedOn(found, line, wanted)


def _cautions(db: Database, found: Standing, now: float, looks: Looks) -> Iterator[str]:
    """What a person who armed a lane with these terms may not expect."""
    terms = found.terms()
    if terms.cap_usd is not None and db.settings.price_usd_h == 0:
        yield (
            f"the cap of {dollars(terms.cap_usd)} can stop nothing: an hour of the lane costs $0; "
            "set what it costs with: cockpit budget price 1.20"
        )
    if terms.cap_gpu_hours is not None and terms.cap_gpu_hours >= _HOURS_OF_A_NIGHT:
        yield f"{exact(terms.cap_gpu_hours)} lane hours a day are more than a day has"
    if looks.nobody:
        yield NOBODY
    line = found.cron_line
    if looks.cron and not looks.serve and line and (missed := _missed(terms, line, now)):
        yield (
            f"cron looks at the queue outside of the window alone, as on {missed}: keep "
            "`cockpit serve` running, choose a shorter interval, or hours in the machine's own zone"
        )


_HOURS_OF_A_NIGHT = 48.0
"""A day with the window over midnight that belongs to it is shorter."""
_LOOKED_AHEAD = 14
"""Windows that are looked at for one that no look of cron meets."""


def _missed(terms: Policy, line: str, now: float) -> str | None:
    """The day of a coming window in which cron does not look; None = it meets them all."""
    at = now
    if terms.hours().always:
        return None
    for _ in range(_LOOKED_AHEAD):
        at = terms.opens_at(at)
        closes = terms.closes_at(at)
        if closes is None or closes <= at:
            return None
        if next(cron.runs(line, at - 60)) >= closes:
            return str(terms.cap_days().day_of(at))
        at = closes
    return None


def switch_off(db: Database, *, actor: str, now: float) -> SwitchedOff:
    """Disarm the lane and undo what arming it has left. Raises CrontabError when the line stays."""
    before = policy.standing(db)
    policy.disarm(db, actor=actor, now=now)
    removed = before is not None and before.cron_line is not None and cron.remove(db.settings)
    rescued: list[Settled] = []
    busy = None
    runner = LocalRunner(db.settings)
    try:
        with hold_lane(db, db.settings, end=runner.kill, scheduled=True) as lease:
            rescued = rescue(lease, runner)
            with Admission(lease, scheduled=True):
                pass  # its end hands the lane back to the resident model
    except LaneHeldError as error:
        busy = str(error)
    return SwitchedOff(bool(before and before.armed), removed, rescued, busy, owed(db))


def status(db: Database, now: float) -> Status:
    """What a person wants to know before going to bed."""
    found = policy.standing(db)
    held: Deferral | None = policy.withheld(db, found, now)
    with db.read() as conn:
        today = governor.spent_today(conn, Terms(db.settings, found, now))
    line = found.cron_line if found else None
    looks = looks_of(db.settings, line, now)
    described = policy.described(found) if found else "nothing starts jobs by itself"
    set_once = bool(found and found.armed)
    over = set_once and held is not None and held.reason is Reason.NOT_ARMED
    return Status(
        lane=db.settings.lane,
        armed=set_once and not over,
        over=over,
        may_start=held is None,
        reason=None if held is None else held.reason,
        detail=described if held is None else held.detail,
        next_eligible_at=now if held is None else held.until,
        terms=found.terms().model_dump() if found else None,
        changed_at=found.changed_at if found else None,
        changed_by=found.changed_by if found else None,
        cron_line=line,
        next_cron_at=looks.cron_at,
        looked_at_by=[
            name for name, there in (("serve", looks.serve), ("cron", looks.cron)) if there
        ],
        next_look_at=looks.next_at if set_once and not over else None,
        cautions=[*_cautions(db, found, now, looks)] if found and set_once and not over else [],
        price_usd_h=db.settings.price_usd_h,
        spent_usd=today.usd,
        used_hours=today.seconds / SECONDS_PER_HOUR,
        resident_owed=owed(db),
    )


def _line(db: Database, terms: Policy, *, must: bool) -> str | None:
    """The crontab line; without one the timer of `cockpit serve` is what remains."""
    try:
        opening = cron.opening(terms.hours(), zone_named(terms.zone))
        return cron.line_for(db.settings, terms.interval_min, opening)
    except ConfigError:
        if must:
            raise
        return None
