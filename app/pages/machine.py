"""The machine page: how near the edge memory is, who holds the lane, what the watchdog decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, JSONResponse

from app.charts.charts import MOST_OUTLINE_ROWS, MOST_POINTS, Table, thinned
from app.charts.panels import DASH_DOT, DASHED, DOTTED, SOLID
from app.text import wording
from app.web.dependencies import DatabaseDep, JobId, SettingsDep
from app.web.templating import page
from engine.contract.run_dir import RunDir
from worker.memory.rule import Action, Limits, Rule
from worker.memory.trace import LOG_S, MemoryPoint
from worker.read import feed, jobs
from worker.read.jobs import JobView
from worker.read.lane import lane_status
from worker.read.machine import AttemptMemory, attempt_memory, machine_now

router = APIRouter(include_in_schema=False)

RULES: Mapping[str, str] = {
    Rule.UNDER_WARN: "under the warn level",
    Rule.FLOOR_HELD: "under the floor for 2 seconds",
    Rule.HARD_FLOOR: "under the hard floor",
    Rule.PROJECTED: "falling to the hard floor within a second",
}
ACTIONS: Mapping[str, str] = {
    Action.WARN: "warned",
    Action.STOP: "asked for a checkpoint and a stop",
    Action.KILL: "killed the engine's process group",
}


@dataclass(frozen=True)
class Decided:
    """One decision of the watchdog in words."""

    at: float
    attempt: int
    what: str
    why: str
    free_gb: float | None
    fall_gb_s: float | None
    place: str


@router.get("/machine")
def machine(
    request: Request,
    database: DatabaseDep,
    settings: SettingsDep,
    job: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
) -> HTMLResponse:
    """The page, or with `?part=live` what changes on it. `job`: whose memory, else the last run."""
    position = feed.last_change_id(database)
    lane = lane_status(database, settings.lane)
    shown = jobs.get_job(database, job) if job else jobs.last_run(database)
    now = machine_now(settings)
    memory = attempts_of(shown) if shown else []
    context = {
        "position": position,
        "title": "Machine",
        "lane": lane,
        "lease_s": settings.lease_s,
        "machine": now,
        "job": shown,
        "asked": job,
        "summary": summary_of(memory, now.limits),
        "traced": any(attempt.history.n for attempt in memory),
        "outline": partial(table_of, memory, now.limits, MOST_OUTLINE_ROWS),
        "calm": calm_of(memory, now.limits),
        "decided": [found for attempt in memory for found in decisions_of(attempt)][::-1],
    }
    return page(request, "machine.html", context)


@router.get("/machine/{job_id}/memory.json")
def memory_drawing(job_id: JobId, database: DatabaseDep, settings: SettingsDep) -> JSONResponse:
    """The columns of the memory chart of one job's attempts."""
    memory = attempts_of(jobs.get_job(database, job_id))
    return JSONResponse(_drawing(memory, machine_now(settings).limits))


@router.get("/machine/{job_id}/memory")
def memory_table(
    request: Request, job_id: JobId, database: DatabaseDep, settings: SettingsDep
) -> HTMLResponse:
    """The same values as a table."""
    job = jobs.get_job(database, job_id)
    table = table_of(attempts_of(job), machine_now(settings).limits)
    context = {"job": job, "table": table, "title": f"{table.title} · job {job_id}"}
    return page(request, "chart_table.html", context)


def attempts_of(job: JobView) -> list[AttemptMemory]:
    """The memory of each attempt that a job had, the first one first."""
    run = RunDir(job.run_dir)
    return [attempt_memory(run, number) for number in range(1, job.attempt + 1)]


def table_of(memory: Sequence[AttemptMemory], limits: Limits, most: int = MOST_POINTS) -> Table:
    """The chart as rows, of about so many readings."""
    drawing = _drawing(memory, limits, most)
    head = [drawing["x_label"], *(line["label"] for line in drawing["lines"])]
    columns = [drawing["x"], *(line["values"] for line in drawing["lines"])]
    rows = [[wording.number(value) for value in row] for row in zip(*columns, strict=True)]
    return Table(drawing["title"], head, rows, drawing["said"])


def summary_of(memory: Sequence[AttemptMemory], limits: Limits) -> str:
    """The chart in a sentence."""
    free = [point.free_gb for attempt in memory for point in attempt.history.points]
    if not free:
        return "No reading was kept yet."
    least = min(free)
    near = (
        "it went under the floor"
        if least < limits.floor_gb
        else "it went under the warn level"
        if least < limits.warn_gb
        else "it stayed above the warn level"
    )
    return (
        f"Free memory began at {wording.gigabytes(free[0])}, stands at "
        f"{wording.gigabytes(free[-1])} and was {wording.gigabytes(least)} at least; {near} "
        f"({wording.gigabytes(limits.warn_gb)}, floor {wording.gigabytes(limits.floor_gb)})."
        f"{_longest_hole(memory)}"
    )


def _longest_hole(memory: Sequence[AttemptMemory]) -> str:
    """How long nobody looked, where that was long: a machine that froze, or no attempt."""
    stretches = [stretch for attempt in memory for stretch in attempt.history.stretches]
    longest = max(
        (behind[0].at - before[-1].at for before, behind in pairwise(stretches)), default=0.0
    )
    if longest <= 0:
        return ""
    return (
        f" The longest time without a reading was {wording.duration(longest)}: "
        "between two attempts, or a machine that stood still."
    )


def calm_of(memory: Sequence[AttemptMemory], limits: Limits) -> str:
    """What an empty list of decisions means, as far as the readings say it."""
    free = [point.free_gb for attempt in memory for point in attempt.history.points]
    if not free:
        return "No decision was kept."
    if min(free) < limits.warn_gb:
        return "Nothing was decided."
    return f"Nothing: memory never came near the warn level of {wording.gigabytes(limits.warn_gb)}."


def decisions_of(memory: AttemptMemory) -> list[Decided]:
    """What the watchdog decided in an attempt, in the order of its looks."""
    return [
        Decided(
            at=entry.at,
            attempt=memory.attempt,
            what=ACTIONS.get(entry.action, entry.action),
            why=RULES.get(entry.rule, entry.rule),
            free_gb=entry.free_gb,
            fall_gb_s=entry.fall_gb_s or None,
            place=f"{entry.phase or 'starting'}"
            f"{'' if entry.step is None else f', step {entry.step}'}",
        )
        for entry in memory.decisions
    ]


def _drawing(
    memory: Sequence[AttemptMemory], limits: Limits, most: int = MOST_POINTS
) -> dict[str, Any]:
    """Free memory over the minutes since the first reading, the limits, and each decision.

    Stretches without a hole are joined, and nothing between them: nobody measured it.
    """
    stretches = [stretch for attempt in memory for stretch in attempt.history.stretches]
    n = sum(attempt.history.n for attempt in memory)
    began = stretches[0][0].at if stretches else 0.0
    free: dict[float, float | None] = {}
    acted: dict[float, float | None] = {}
    for before, behind in pairwise(stretches):
        free[_minutes((before[-1].at + behind[0].at) / 2, began)] = None
    for entry in chain.from_iterable(attempt.decisions for attempt in memory if stretches):
        if entry.free_gb is not None:  # a decision is a reading too
            free[_minutes(entry.at, began)] = acted[_minutes(entry.at, began)] = entry.free_gb
    share = most / max(1, sum(map(len, stretches)))
    thin = list(chain.from_iterable(_thinned(stretch, share) for stretch in stretches))
    free |= {_minutes(at, began): free_gb for at, free_gb in thin}
    x = sorted(free)
    lines = [
        _line("free memory", "a", SOLID, [free[at] for at in x]) | {"holes": True},
        _line("warn level", "c", DASH_DOT, [limits.warn_gb] * len(x)),
        _line("floor", "d", DASHED, [limits.floor_gb] * len(x)),
        _line("hard floor", "d", DOTTED, [limits.hard_gb] * len(x)),
    ]
    if acted:  # moments, which nothing joins
        lone = {"marks": True, "joined": False}
        lines.append(_line("watchdog acted", "b", SOLID, [acted.get(at) for at in x]) | lone)
    return {
        "title": "Free memory",
        "x_label": "minutes since the first reading",
        "x": x,
        "lines": lines,
        "gates": [],
        "gaps": [],
        "selected": None,
        "band": [],
        "said": _drawn_of(len(thin), n),
    }


def _drawn_of(points: int, n: int) -> str:
    """How many readings are drawn, of how many."""
    if points >= n:
        return "" if n == 0 else "1 reading" if n == 1 else f"all {n} readings"
    return f"{points} of {n} readings: the lowest and the highest of each stretch"


def _thinned(stretch: Sequence[MemoryPoint], share: float) -> list[tuple[float, float]]:
    """A share of a stretch, its lowest and highest too; a reading alone is a second of line."""
    places = [(place, point.free_gb) for place, point in enumerate(stretch)]
    kept = thinned(places, max(2, int(len(stretch) * share)))
    pairs = [(stretch[place].at, free_gb) for place, free_gb in kept]
    return pairs if len(stretch) > 1 else [*pairs, (stretch[0].at + LOG_S, stretch[0].free_gb)]


def _line(
    label: str, colour: str, dash: Sequence[int], values: Sequence[float | None]
) -> dict[str, Any]:
    return {
        "label": label,
        "unit": "GB",
        "colour": colour,
        "axis": "left",
        "marks": False,
        "dash": dash,
        "values": values,
    }


def _minutes(at: float, began: float) -> float:
    return round((at - began) / 60, 4)
