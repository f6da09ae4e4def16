"""What the queue page shows of a night: every job a row on one axis, the money below, in words too.

From the worker's preview and the jobs' rows; asks nobody. Knows no route and no form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from markupsafe import Markup

from app.charts.night import Bar, Night
from app.text import wording
from app.text.headline import Headline
from worker.budget.ledger import SECONDS_PER_HOUR
from worker.queue.deferral import Reason
from worker.read.jobs import JobView, SweepView
from worker.read.tonight import Preview, Step
from worker.schedule.policy import Policy

SHORT = {
    Reason.OVER_DAILY_CAP: "cap",
    Reason.OOM_ENVELOPE: "memory",
    Reason.LANE_BIN_ABSENT: "program",
    Reason.RESIDENT_STUCK: "resident model",
    Reason.OUTSIDE_WINDOW: "window",
    Reason.NOT_ARMED: "another night",
    Reason.NOT_BEFORE: "start time",
    Reason.WAITING_FOR: "another job",
    Reason.DISK_FULL: "disk",
    Reason.SERVER_LOST: "server",
    Reason.PAUSED: "pause",
}
"""What a job waits for, in a word or two; another reason is told by its code alone."""
ESTIMATED = frozenset({"same", "kind"})
"""How a length is known from runs that were finished."""


@dataclass(frozen=True)
class Line:
    """A job's row: its bar, and beside it two lines of words."""

    job: JobView
    bar: Markup
    lead: str = ""
    """When it runs."""
    starts_at: float | None = None
    facts: str = ""
    """What it costs and needs."""
    waits: str | None = None
    """What it waits for instead, in a word."""
    code: str | None = None
    """The reason, as machines read it."""
    then: str = ""
    """The second line."""
    until: str | None = None
    """When what it waits for has come."""
    raises_cap: bool = False
    """Whether another cap would let it run."""
    number: int | None = None
    """Its place among those that wait for their turn; None for one that waits for its own thing."""
    above: int | None = None
    """The job before it in turn: what `Up` moves it before."""
    below: int | None = None

    @property
    def fits(self) -> bool:
        return self.waits is None


@dataclass(frozen=True)
class Group:
    """Neighbours in the queue: one job, or several of the same sweep."""

    sweep: SweepView | None
    lines: Sequence[Line]
    heading: str | None = None
    """What begins with it."""


@dataclass(frozen=True)
class Running:
    """A job on the lane."""

    job: JobView
    head: Headline
    bar: Markup
    ends: str


@dataclass(frozen=True)
class NightView:
    """The whole drawing."""

    title: str
    order: str
    """Above the jobs in turn."""
    axis: Markup
    clock: str
    running: Sequence[Running]
    groups: Sequence[Group]
    aside: Sequence[Line]
    money: Markup
    spent: str
    spent_then: str
    fits: str
    """How many jobs fit, about what money and hours."""
    free: str


@dataclass(frozen=True)
class Told:
    """What a night is drawn from."""

    plan: Preview
    terms: Policy | None
    """Whose window is drawn; None where a person's drain asks for none."""
    now: float
    price_usd_h: float
    armed: bool
    paused: bool

    def night(self, running: Sequence[JobView]) -> Night:
        """Its axis."""
        opens, closes = self._window()
        ends = [one.stops_at or one.finishes_at for one in self.plan.tonight]
        lasts = [end for end in (*ends, *(_end(job, self.now) for job in running)) if end]
        last = max(lasts, default=None)
        return Night.around(self.now, runs=bool(running), opens=opens, closes=closes, last=last)

    def _window(self) -> tuple[float | None, float | None]:
        if self.terms is None or self.plan.ordered or self.terms.hours().always:
            return None, None
        opens = self.terms.opens_at(self.now)
        span = self.terms.span_at(opens)
        return (None, None) if span is None else (span.opens, self.terms.closes_at(opens))


def night_view(
    told: Told,
    running: Sequence[JobView],
    turn: Sequence[JobView],
    aside: Sequence[JobView],
    sweep: Callable[[int], SweepView],
) -> NightView:
    """`turn`: the jobs that only wait for their turn; `aside`: those with a reason of their own."""
    night = told.night(running)
    rows = _Rows(told, night)
    return NightView(
        title=_title(told),
        order=_order(told, night),
        axis=night.head(),
        clock=_clock(told.now),
        running=[_running(job, night, told.now) for job in running],
        groups=_groups([rows.line(job, own=False) for job in turn], sweep),
        aside=[rows.line(job, own=True) for job in sorted(aside, key=rows.starts)],
        money=night.money(
            [(one.at, one.usd) for one in told.plan.money], told.plan.cap_usd, _spent(told)
        ),
        spent=_spent(told),
        spent_then=_spent_then(told, night, waits=bool(turn or aside)),
        fits=_fits(told, waits=bool(turn or aside)),
        free=_free(told.plan),
    )


def _fits(told: Told, *, waits: bool) -> str:
    """Of a window: how much of the queue it holds. A person's drain has none."""
    if not waits:
        return "Nothing waits."
    if told.plan.ordered:
        return "A person's drain takes the queue now; it asks no window and no cap."
    said = _how_much(told.plan)
    return f"The queue is paused; if it were resumed now: {said}" if told.paused else said


def _how_much(plan: Preview) -> str:
    """And what is counted for what nobody knows."""
    found = plan.tonight
    if not found:
        why = next((one.detail for one in plan.steps if one.detail), None)
        return f"No job fits: {_short(why)}." if why else "No job fits."
    seconds = sum((one.stops_at or one.finishes_at or 0) - (one.starts_at or 0) for one in found)
    usd = sum(one.cost_usd for one in found)
    said = f"{len(found)} {_jobs(len(found), 'fits', 'fit')}, about ${usd:.2f} and {_span(seconds)}"
    guessed = sum(one.expected_by == "guess" for one in found)
    if not guessed:
        return f"{said}."
    counted = next(one.expected_s for one in found if one.expected_by == "guess")
    return f"{said}; {guessed} without an estimate, counted as {_span(counted)} each."


class _Rows:
    """The rows of jobs that wait."""

    def __init__(self, told: Told, night: Night) -> None:
        self._told = told
        self._night = night
        self._steps = {step.job_id: step for step in told.plan.steps}
        ends = [step.stops_at or step.finishes_at or 0.0 for step in told.plan.tonight]
        self._idle_from = max(ends, default=told.plan.starts_at or told.now)
        self._tonight = {step.job_id for step in told.plan.tonight}

    def starts(self, job: JobView) -> float:
        """When a job starts tonight; infinity: it does not."""
        step = self._steps.get(job.id)
        return math.inf if step is None or step.starts_at is None else step.starts_at

    def line(self, job: JobView, *, own: bool) -> Line:
        """`own`: it waits for something of its own."""
        step = self._steps.get(job.id)
        code = job.waits_for.reason if job.waits_for and own else None
        if step is None:
            looked = f"it stands behind the first {len(self._steps)} of the queue"
            bar = self._night.row([], "")
            return Line(job, bar, "not looked at", code=code, then=looked)
        if job.id in self._tonight:
            line = replace(self._runs(job, step), code=code)
            why = _short(job.waits_for.detail) if job.waits_for and own else None
            return replace(line, then=f"{why}; {line.then}") if why else line
        return self._waits(job, step)

    def _runs(self, job: JobView, step: Step) -> Line:
        night, begins = self._night, step.starts_at or 0.0
        ends = step.stops_at or step.finishes_at or begins
        known = step.expected_by in ESTIMATED
        kind = "no" if self._told.paused else "job" if known else "guess"
        words = _span(ends - begins) if known else "no estimate"
        bar = Bar(begins, ends, kind, words, _likely(step))
        lead = f"{night.clock(begins)} to {night.clock(ends)}"
        if begins >= night.ends:
            bar, lead = replace(bar, ends=begins), f"from {wording.when(begins)}"
        then = _length(step)
        if step.stops_at:
            then = f"stops at a checkpoint at {night.clock(step.stops_at)}, goes on later; {then}"
        words = f"{lead}, {then}"
        return Line(job, night.row([bar], words), lead, begins, _facts(step), then=then)

    def _waits(self, job: JobView, step: Step) -> Line:
        reason = Reason(step.reason) if step.reason else self._why(job)
        word = SHORT.get(reason, reason.replace("_", " ").lower()) if reason else "its turn"
        over_cap = reason is Reason.OVER_DAILY_CAP
        bars = []
        if over_cap:
            begins = self._idle_from
            bars = [Bar(begins, begins + step.expected_s, "no")]
        then = _short(step.detail or "it does not start by itself")
        if step.starts_at is not None:
            word, reason = "another night", Reason.OUTSIDE_WINDOW
            then = f"its turn comes {wording.when(step.starts_at)}"
        return Line(
            job,
            self._night.row(bars, f"waits: {word}"),
            facts=_facts(step),
            waits=word,
            code=reason,
            then=then,
            until=wording.when(step.next_eligible_at) if step.next_eligible_at else None,
            raises_cap=over_cap and not self._told.armed,
        )

    @staticmethod
    def _why(job: JobView) -> Reason | None:
        return Reason(job.waits_for.reason) if job.waits_for else None


def _groups(lines: Sequence[Line], sweep: Callable[[int], SweepView]) -> list[Group]:
    """Neighbours of one sweep stand together; what does not run at the end has a heading."""
    placed = [
        replace(
            line,
            number=index + 1,
            above=lines[index - 1].job.id if index else None,
            below=lines[index + 1].job.id if index + 1 < len(lines) else None,
        )
        for index, line in enumerate(lines)
    ]
    last = max((line.number or 0 for line in placed if line.fits), default=0)
    found = []

    def together(line: Line) -> tuple[int, bool]:
        return line.job.sweep_id or -line.job.id, (line.number or 0) > last

    for (key, behind), neighbours in groupby(placed, key=together):
        group = list(neighbours)
        heads = behind and last > 0 and group[0].number == last + 1
        shown = sweep(key) if key > 0 and len(group) > 1 else None
        found.append(Group(shown, group, "Will not run tonight" if heads else None))
    return found


def _running(job: JobView, night: Night, now: float) -> Running:
    begins, ends = job.started_at or now, _end(job, now)
    bars = [Bar(begins, now, "done")]
    if ends is not None and ends > now:
        bars = [Bar(begins, ends, "job"), *bars]
    said = f"ends about {night.clock(ends)}" if ends else "no estimate of its end"
    return Running(job, Headline.of(job), night.row(bars, f"running, {said}"), said)


def _end(job: JobView, now: float) -> float | None:
    left = Headline.of(job).left_s(now)
    return None if left is None else now + max(0.0, left)


def _title(told: Told) -> str:
    if told.plan.ordered:
        return "Now, as the drain goes on"
    if told.paused:
        return "Tonight, if the queue were resumed"
    if told.terms is None:
        return "If somebody pressed Run now"
    return "Tonight, as it will go" if told.armed else "Tonight, as it would go"


def _order(told: Told, night: Night) -> str:
    if told.plan.ordered:
        return "In this order; a person's drain asks no window and no cap"
    if not told.plan.tonight:
        return "In this order; none of them runs tonight"
    if told.plan.starts_at is None:
        return "In this order"
    return f"In this order, from {night.clock(told.plan.starts_at)}"


def _clock(now: float) -> str:
    zone = getattr(wording.told_in(), "key", None) or wording.zone(now)
    return f"it is {wording.hour(now)}, {zone}"


def _spent(told: Told) -> str:
    usd = told.plan.money[-1].usd if told.plan.money else told.plan.spent_usd
    of = f" of {wording.dollars(told.plan.cap_usd)}" if told.plan.cap_usd is not None else ""
    return f"${usd:.2f}{of} expected"


def _spent_then(told: Told, night: Night, *, waits: bool) -> str:
    """Between which sums, when the cap is reached, from when on nothing runs."""
    plan, said = told.plan, []
    if plan.spent_usd:
        said.append(f"${plan.spent_usd:.2f} is spent today.")
    if (bounds := _bounds(told)) and bounds[1] - bounds[0] > 0.01:
        said.append(f"${bounds[0]:.2f} to ${bounds[1]:.2f} by the fastest and slowest such runs.")
    if plan.capped_at is not None:
        said.append(f"The cap is reached at {night.clock(plan.capped_at)}.")
    ends = [one.stops_at or one.finishes_at or 0.0 for one in plan.tonight]
    if ends and night.closes is not None and max(ends) < night.closes - 60:
        left = waits and len(plan.tonight) < len(plan.steps)
        rest = ": nothing that waits fits" if left else ""
        said.append(f"From {night.clock(max(ends))} the lane is idle{rest}.")
    return " ".join(said)


def _likely(step: Step) -> tuple[float, float] | None:
    """Between which moments it ends, where that is a stretch that one can see."""
    if step.ends_from is None or step.ends_to is None or step.stops_at is not None:
        return None
    wide = step.ends_to - step.ends_from > max(60.0, step.expected_s / 50)
    return (step.ends_from, step.ends_to) if wide else None


def _bounds(told: Told) -> tuple[float, float] | None:
    """The night's money if every job took what the fastest, or the slowest, run like it did."""
    found = told.plan.tonight
    if not found or not told.price_usd_h or not told.plan.money:
        return None
    before = told.plan.money[-1].usd - sum(one.cost_usd for one in found)
    sums = [before, before]
    for one in found:
        if one.ends_from is None or one.ends_to is None or one.starts_at is None or one.stops_at:
            return None
        for index, end in enumerate((one.ends_from, one.ends_to)):
            sums[index] += (end - one.starts_at) / SECONDS_PER_HOUR * told.price_usd_h
    return sums[0], sums[1]


def _free(plan: Preview) -> str:
    floor = wording.gigabytes(plan.floor_gb)
    return f"{wording.gigabytes(plan.free_gb)} of memory are free, of which {floor} stay free"


def _facts(step: Step) -> str:
    need = f", {wording.gigabytes(step.need_gb)}" if step.need_gb is not None else ""
    return f", ${step.cost_usd:.2f}{need}"


def _length(step: Step) -> str:
    """How long it takes, and from what that is known."""
    if step.expected_by == "guess":
        return f"no estimate, counted as {_span(step.expected_s)}"
    if step.expected_by == "tried":
        return f"{_span(step.expected_s)} at least: it got to no checkpoint in less"
    runs = f"{step.expected_runs} {'run' if step.expected_runs == 1 else 'runs'}"
    like = "of the same settings" if step.expected_by == "same" else "of its kind"
    return f"{_span(step.expected_s)}, from {runs} {like}"


def _span(seconds: float) -> str:
    """A length as one reads it on a bar: `2 h 54`, `42 min`.

    >>> _span(10_440), _span(2520), _span(7200), _span(40)
    ('2 h 54', '42 min', '2 h', '40 s')
    """
    minutes = round(seconds / 60)
    if not 60 <= minutes < 24 * 60:
        return wording.duration(seconds if minutes < 2 else minutes * 60)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest:02}" if rest else f"{hours} h"


def _short(detail: str) -> str:
    """What has happened, without the way out: that stands beside it as a button."""
    return detail.partition("; ")[0]


def _jobs(n: int, one: str, many: str) -> str:
    return f"job {one}" if n == 1 else f"jobs {many}"
