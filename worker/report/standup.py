"""The report of one night, built from rows, and the one sentence that stands first.

    RAN 3 · +2.1 ± 1.3 held-out, best of 2 · peak 19.2 GB · 1 OOM-deferred · $1.84 of $5

Points of held-out accuracy are those of the night's best gain, if it stands among all the runs that
were judged (`worker.report.gains`). Every figure is a sum over rows that stand in the report with
it; hours, money and energy are those of the night, also of an attempt that began before it or goes
on behind it. Writes nothing.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict
from sqlalchemy import select

from worker.amounts import dollars
from worker.budget import ledger
from worker.budget.ledger import SECONDS_PER_HOUR
from worker.clock.night import Night
from worker.db import decisions
from worker.db.connection import Database
from worker.db.decisions import DEFER, DecisionView
from worker.db.tables import job
from worker.read.benches import losses
from worker.read.groups import Group, groups_among
from worker.report.evaluated import Evaluated, evaluated_by
from worker.report.gains import asked, doubtful, standing
from worker.report.gaps import Gap, Known, busy_in, gaps_of
from worker.report.going import GoingLine, going_on
from worker.report.proposals import Proposal, proposals_of
from worker.report.runs import MEMORY, RunLine, configs_of, runs_of
from worker.schedule import policy
from worker.schedule.policy import Policy

_JOULES_PER_KWH = 3.6e6


class DayMoney(BaseModel):
    """The ledger of one local day that the night touches."""

    model_config = ConfigDict(frozen=True)

    day: datetime.date
    spent_usd: float
    used_hours: float
    cap_usd: float | None
    cap_gpu_hours: float | None


class Report(BaseModel):
    """A night. Times are Unix seconds."""

    model_config = ConfigDict(frozen=True)

    lane: str
    day: datetime.date
    """Of its morning."""
    begin: float
    end: float
    made_at: float
    over: bool
    """Whether nothing can be added to it."""
    sentence: str
    runs: list[RunLine]
    groups: list[Group] = []
    """Seed groups of which a run stands here and none is still to come."""
    evaluated: list[Evaluated] = []
    """Runs whose checkpoints jobs of the night scored on benches."""
    going: list[GoingLine] = []
    """What ran on when the night ended, or runs on now; nights kept long ago did not tell."""
    ran: int
    failed: int
    oom_deferred: int
    """Attempts that the watchdog stopped."""
    deferred: dict[str, list[int]]
    """Reason → jobs that were put off for it."""
    peak_gb: float | None
    lane_hours: float
    energy_kwh: float | None
    """Of processor packages and accelerator while jobs ran; None where no counter can be read."""
    spent_usd: float
    """By attempts in the night, and elsewhere on its days."""
    external_usd: float
    """Of that, elsewhere: written down in the night, for one of its two days."""
    cap_usd: float | None
    days: list[DayMoney]
    gaps: list[Gap]
    idle_hours: float
    decisions: list[DecisionView]
    proposals: list[Proposal]


def build(db: Database, night: Night, now: float | None = None) -> Report:
    """The night as the rows tell it now."""
    now = time.time() if now is None else now
    lane = db.settings.lane
    runs = runs_of(db, lane, night)
    going = going_on(db, night, now)
    found = decisions.between(db, lane, night.begin, night.end)
    armed = policy.in_force(db, night.begin, min(night.end, now))
    terms = armed[-1].terms if armed else None
    gaps = gaps_of(night, now, Known(found, busy_in(runs, going), _over(db, found)), armed)
    days = _days(db, night, terms)
    # Also by day: money of another day counts for that one's cap, not for the one told here.
    told = [view.day for view in days]
    external = ledger.external_between(db, night.begin, night.end, told)
    here = [run.usd - run.usd_before for run in runs] + [one.usd for one in going]
    spent = sum(here) + external
    cap = terms.cap_usd if terms else None
    return Report(
        lane=lane,
        day=night.day,
        begin=night.begin,
        end=night.end,
        made_at=now,
        over=night.over(now),
        sentence=sentence(runs, going, spent, _of_cap(spent, cap, days)),
        runs=runs,
        groups=[one for one in groups_among(db, [run.job_id for run in runs]) if one.over],
        evaluated=evaluated_by(db, [run.job_id for run in runs]),
        going=going,
        ran=len(runs),
        failed=sum(run.failed for run in runs),
        oom_deferred=_stopped_for_memory(runs),
        deferred=_deferred(found),
        peak_gb=_peak(runs),
        energy_kwh=_kilowatt_hours(runs, going),
        lane_hours=_lane_seconds(runs, going) / SECONDS_PER_HOUR,
        spent_usd=spent,
        external_usd=external,
        cap_usd=cap,
        days=days,
        gaps=gaps,
        idle_hours=sum(gap.seconds for gap in gaps) / SECONDS_PER_HOUR,
        decisions=found,
        proposals=proposals_of(runs, found, configs_of(db, [run.job_id for run in runs])),
    )


def sentence(runs: Sequence[RunLine], going: Sequence[GoingLine], spent: float, of_cap: str) -> str:
    """The standup line."""
    failed = sum(run.failed for run in runs)
    parts = [f"RAN {len(runs)}"]
    if failed:
        parts.append(f"{failed} FAILED")
    alive = sum(one.alive for one in going)
    if alive:
        parts.append(f"{alive} RUNNING")
    if stale := len(going) - alive:
        parts.append(f"{stale} STALE")
    if heldout := _heldout(runs):
        parts.append(heldout)
    if (peak := _peak(runs)) is not None:
        parts.append(f"peak {peak:.1f} GB")
    parts.append(f"{_stopped_for_memory(runs)} OOM-deferred")
    parts.append(f"${spent:.2f}{of_cap}")
    return " · ".join(parts)


def _of_cap(spent: float, cap: float | None, days: Sequence[DayMoney]) -> str:
    """More than one cap is no mistake of a lane that works around the clock: its night has two."""
    if cap is None:
        return ""
    two = spent > cap and all(day.spent_usd > 0 for day in days)
    return f" of {dollars(cap)}" + (" a day" if two else "")


def _elsewhere(best: RunLine) -> str:
    """What the run lost beside its gain."""
    lost = [line.label for line in losses(best.benches)]
    return f", lost on {', '.join(lost)}" if lost else ""


def _heldout(runs: Sequence[RunLine]) -> str | None:
    """The best gain in points, if it stands among all that were judged; else words alone. That of a
    demo where there is no other.
    """
    judged = [run for run in runs if run.verdict is not None]
    among = len(asked(runs))
    found = [run for run in standing(runs) if run.lift is not None]
    if found:
        best = max(found, key=lambda run: (not run.demo, run.lift or 0.0))
        of = f", best of {among}" if among > 1 else ""
        demo = " · only a demo" if best.demo else ""
        return f"{_points(best)} held-out{of}{_elsewhere(best)}{demo}"
    if gained := doubtful(runs):
        said = "1 gain" if len(gained) == 1 else f"{len(gained)} gains"
        return f"held-out: {said} of {among} runs, which may be chance"
    if judged:
        words = dict.fromkeys(run.verdict for run in judged)
        return "held-out: " + ", ".join(filter(None, words))
    return None


def _points(run: RunLine) -> str:
    """The lift with its interval, low to high where the two sides of it are not alike.

    >>> _points(RunLine.model_construct(lift=0.021, low=-0.001, high=0.034))
    '+2.1 (−0.1 to +3.4)'
    """
    lift = (run.lift or 0.0) * 100
    if run.low is None or run.high is None:
        return f"{lift:+.1f}"
    low, high = run.low * 100, run.high * 100
    below, above = f"{lift - low:.1f}", f"{high - lift:.1f}"
    if below == above:
        return f"{lift:+.1f} ± {below}"
    return f"{lift:+.1f} ({low:+.1f} to {high:+.1f})".replace("-", "−")


def _stopped_for_memory(runs: Sequence[RunLine]) -> int:
    return sum(entry.cause == MEMORY for run in runs for entry in run.attempts)


def _peak(runs: Sequence[RunLine]) -> float | None:
    return max((run.peak_gb for run in runs if run.peak_gb is not None), default=None)


def _lane_seconds(runs: Sequence[RunLine], going: Sequence[GoingLine]) -> float:
    ended = sum(run.seconds - run.seconds_before for run in runs)
    return ended + sum(one.seconds for one in going)


def _kilowatt_hours(runs: Sequence[RunLine], going: Sequence[GoingLine]) -> float | None:
    known = [run.joules - run.joules_before for run in runs if run.joules is not None]
    known += [one.joules for one in going if one.joules is not None]
    return sum(known) / _JOULES_PER_KWH if known else None


def _deferred(found: Sequence[DecisionView]) -> dict[str, list[int]]:
    reasons: dict[str, list[int]] = {}
    for entry in found:
        if entry.what == DEFER and entry.rule and entry.job_id is not None:
            jobs = reasons.setdefault(entry.rule, [])
            if entry.job_id not in jobs:
                jobs.append(entry.job_id)
    return reasons


def _over(db: Database, found: Sequence[DecisionView]) -> dict[int, float]:
    """When those of the jobs that were put off ended that are over."""
    ids = {entry.job_id for entry in found if entry.what == DEFER and entry.job_id is not None}
    ended = select(job.c.id, job.c.finished_at).where(
        job.c.id.in_(ids), job.c.finished_at.is_not(None)
    )
    with db.read() as conn:
        return {row.id: row.finished_at for row in conn.execute(ended)}


def _days(db: Database, night: Night, terms: Policy | None) -> list[DayMoney]:
    """Plan and use of the local days that the night touches: its evening's and its morning's."""
    touched = (night.day - datetime.timedelta(days=1), night.day)
    views = [ledger.day_view(db, day, night.end) for day in touched]
    return [
        DayMoney(
            day=view.day,
            spent_usd=view.spent_usd,
            used_hours=view.used_hours,
            cap_usd=terms.cap_usd if terms else None,
            cap_gpu_hours=terms.cap_gpu_hours if terms else None,
        )
        for view in views
    ]
