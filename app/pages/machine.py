"""The machine page: how near the edge memory is, who holds the lane, what the watchdog decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, JSONResponse

from app import wording
from app.charts import thinned
from app.panels import DASH_DOT, DASHED, DOTTED, SOLID
from app.parts import DatabasePart, JobId, SettingsPart
from app.templating import page
from engine.contract.run_dir import RunDir
from worker.database import Database
from worker.jobs import views
from worker.jobs.views import JobView
from worker.lane.machine import AttemptMemory, attempt_memory, machine_now
from worker.lane.mem_trace import MemoryPoint
from worker.lane.watchdog import Action, Limits, Rule

router = APIRouter(include_in_schema=False)

NEWEST = 50
"""Among so many jobs the last one that ran is looked for."""
RULES = {
    Rule.UNDER_WARN: "under the warn level",
    Rule.FLOOR_HELD: "under the floor for 2 seconds",
    Rule.HARD_FLOOR: "under the hard floor",
    Rule.PROJECTED: "falling to the hard floor within a second",
}
ACTIONS = {
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
    database: DatabasePart,
    settings: SettingsPart,
    job: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
) -> HTMLResponse:
    """The page, or with `?part=live` what changes on it. `job`: whose memory, else the last run."""
    position = views.last_change_id(database)
    lane = views.lane_status(database, settings.lane)
    shown = views.get_job(database, job) if job else _last_run(database)
    now = machine_now(settings)
    memory = attempts_of(shown) if shown else []
    context = {
        "position": position,
        "title": "Machine",
        "lane": lane,
        "lease_s": settings.lease_s,
        "machine": now,
        "job": shown,
        "summary": summary_of(memory, now.limits),
        "decided": [found for attempt in memory for found in decisions_of(attempt)][::-1],
    }
    return page(request, "machine.html", context)


@router.get("/machine/{job_id}/memory.json")
def memory_drawing(job_id: JobId, database: DatabasePart, settings: SettingsPart) -> JSONResponse:
    """The columns of the memory chart of one job's attempts."""
    memory = attempts_of(views.get_job(database, job_id))
    return JSONResponse(_drawing(memory, machine_now(settings).limits))


@router.get("/machine/{job_id}/memory")
def memory_table(
    request: Request, job_id: JobId, database: DatabasePart, settings: SettingsPart
) -> HTMLResponse:
    """The same values as a table."""
    job = views.get_job(database, job_id)
    drawing = _drawing(attempts_of(job), machine_now(settings).limits)
    head = [drawing["x_label"], *(line["label"] for line in drawing["lines"])]
    columns = [drawing["x"], *(line["values"] for line in drawing["lines"])]
    rows = [[wording.number(value) for value in row] for row in zip(*columns, strict=True)]
    table = {"title": drawing["title"], "head": head, "rows": rows, "left_out": 0}
    context = {"job": job, "table": table, "title": f"{drawing['title']} · job {job_id}"}
    return page(request, "chart_table.html", context)


def _last_run(database: Database) -> JobView | None:
    """What runs, else what ran last."""
    running = views.running(database)
    if running:
        return running[0]
    started = [job for job in views.list_jobs(database, limit=NEWEST) if job.attempt]
    return max(started, key=lambda job: job.heartbeat_at or job.started_at or 0.0, default=None)


def attempts_of(job: JobView) -> list[AttemptMemory]:
    """The memory of each attempt that a job had, the first one first."""
    run = RunDir(job.run_dir)
    return [attempt_memory(run, number) for number in range(1, job.attempt + 1)]


def summary_of(memory: Sequence[AttemptMemory], limits: Limits) -> str:
    """The chart in a sentence."""
    free = [point.free_gb for attempt in memory for point in attempt.points]
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
    )


def decisions_of(memory: AttemptMemory) -> list[Decided]:
    """What the watchdog decided in an attempt, in the order of its looks."""
    found = []
    for entry in memory.decisions:
        step, phase = entry.get("step"), entry.get("phase")
        place = f"{phase or 'starting'}{'' if step is None else f', step {step}'}"
        found.append(
            Decided(
                at=entry["at"],
                attempt=memory.attempt,
                what=ACTIONS.get(entry["action"], entry["action"]),
                why=RULES.get(entry["rule"], entry["rule"]),
                free_gb=entry.get("free_gb"),
                fall_gb_s=entry.get("fall_gb_s") or None,
                place=place,
            )
        )
    return found


def _drawing(memory: Sequence[AttemptMemory], limits: Limits) -> dict[str, Any]:
    """Free memory over the minutes since the first reading, the limits, and each decision."""
    points: list[MemoryPoint] = [point for attempt in memory for point in attempt.points]
    began = points[0].at if points else 0.0
    thin = thinned([(index, point.free_gb) for index, point in enumerate(points)])
    free = {_minutes(points[index].at, began): value for index, value in thin}
    acted = {
        _minutes(entry["at"], began): entry.get("free_gb")
        for attempt in memory
        for entry in attempt.decisions
        if points
    }
    x = sorted({*free, *acted})
    lines = [
        _line("free memory", "a", SOLID, [free.get(at) for at in x]),
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
    }


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
