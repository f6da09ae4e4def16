"""The charts of a run: the curated ones, every recorded series, their columns and their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse

from app import charts
from app.charts import Axis, Shade
from app.headline import Headline
from app.panels import CHARTS, HELDOUT, POOL, TOKENS, WARMUP, Chart, curated, of_one
from app.parts import NO_NUL, DatabasePart, JobId
from app.templating import page
from worker.database import Database
from worker.jobs import series, views
from worker.jobs.series import Curve, Steps, Summary
from worker.jobs.views import JobView

router = APIRouter(prefix="/jobs/{job_id}", include_in_schema=False)

MOST_LISTED = 200
AxisName = Literal["step", "tokens", "time"]
SeriesName = Annotated[str, Query(max_length=300, pattern=NO_NUL)]


@dataclass(frozen=True)
class Panel:
    """A chart with its sentence."""

    chart: Chart
    summary: str


@dataclass(frozen=True)
class Listed:
    """The recorded series that a search finds."""

    rows: Sequence[tuple[str, str]]
    """(name, its last value and how many there are)."""
    n: int
    """How many the search finds."""
    every: int
    """How many there are."""


def panels(
    job: JobView, known: Mapping[str, Summary], gap: float | None, remark: str
) -> list[Panel]:
    """The charts that this kind opens with; before the first step, the warm-up too."""
    found = []
    for place, chart in enumerate(curated(job.kind)):
        if place == 0:
            found.append(Panel(chart, f"{charts.summary(chart, known, gap)} {remark}".rstrip()))
        elif any(name in known for name in chart.series):
            found.append(Panel(chart, charts.summary(chart, known)))
    if not any(name in known for name in found[0].chart.series) and "warmup/loss" in known:
        found.append(Panel(WARMUP, charts.summary(WARMUP, known)))
    return found


def listed(known: Mapping[str, Summary], wanted: str) -> Listed:
    """Every series whose name holds the wanted words."""
    words = wanted.lower().split()
    names = [name for name in sorted(known) if all(word in name.lower() for word in words)]
    rows = []
    for name in names[:MOST_LISTED]:
        line, summary = of_one(name).lines[0], known[name]
        points = "1 value" if summary.n == 1 else f"{summary.n} values"
        rows.append((name, f"{line.text(summary.last)} at step {summary.last_step}, {points}"))
    return Listed(rows, len(names), len(known))


def latest_gap(database: Database, job_id: int, known: Mapping[str, Summary]) -> float | None:
    """Pool minus held-out at the newest gate."""
    gate = known.get(HELDOUT)
    if gate is None:
        return None
    pool = series.tail(database, job_id, POOL, charts.RECENT, up_to=gate.last_step)
    return charts.latest_gap(pool, gate.last)


class Wanted(BaseModel):
    """The part of a run that a drawing shows, and along which axis."""

    axis: AxisName = "step"
    first: int | None = Field(None, ge=0, le=2**31 - 1, alias="from")
    last: int | None = Field(None, ge=0, le=2**31 - 1, alias="to")


WantedPart = Annotated[Wanted, Query()]


@router.get("/charts/{name}.json")
def chart_drawing(
    job_id: JobId, name: str, database: DatabasePart, wanted: WantedPart
) -> JSONResponse:
    """The columns of one chart, of all its steps or of those `from` … `to`."""
    return _drawing(database, job_id, _chart(name), wanted)


@router.get("/charts/{name}")
def chart_table(request: Request, job_id: JobId, name: str, database: DatabasePart) -> HTMLResponse:
    """The newest values of one chart as a table."""
    return _table(request, database, job_id, _chart(name))


class WantedSeries(Wanted):
    """The same of any one series."""

    name: str = Field(max_length=300, pattern=NO_NUL)


@router.get("/series.json")
def series_drawing(
    job_id: JobId, database: DatabasePart, wanted: Annotated[WantedSeries, Query()]
) -> JSONResponse:
    """The columns of any one series."""
    return _drawing(database, job_id, of_one(wanted.name), wanted)


@router.get("/series")
def series_table(
    request: Request, job_id: JobId, name: SeriesName, database: DatabasePart
) -> HTMLResponse:
    """The newest values of any one series as a table."""
    return _table(request, database, job_id, of_one(name))


def _chart(name: str) -> Chart:
    try:
        return CHARTS[name]
    except KeyError:
        known = ", ".join(CHARTS)
        raise HTTPException(404, f"{name[:100]!r} is no chart; known: {known}") from None


def _drawing(database: Database, job_id: int, chart: Chart, wanted: Wanted) -> JSONResponse:
    job = views.get_job(database, job_id)
    name, steps = wanted.axis, Steps(wanted.first, wanted.last)
    if chart.x_label != "step":
        name, steps = "step", Steps()  # warm-up steps are counted on their own
    names = [*chart.series, *([TOKENS] if name == "tokens" else ())]
    # Tokens are summed up from the run's beginning, whatever part of it is shown.
    curves = series.curves(database, job_id, names, Steps() if name == "tokens" else steps)
    axis = _axis(job, name, curves)
    if name == "tokens":
        curves |= series.curves(database, job_id, chart.series, steps)
    shades = _shades(database, job, chart, curves, axis)
    drawn = charts.drawing(chart, curves, Headline.of(job).selected_step, axis, shades)
    if axis is None and name != "step":
        drawn["said"] += f"; this run has no {name} recorded, so it is drawn by step"
    return JSONResponse(drawn)


def _axis(job: JobView, name: AxisName, curves: Mapping[str, Curve]) -> Axis | None:
    if name == "time":
        began, seconds = _span(job)
        return charts.time_axis(curves, began, seconds)
    return charts.token_axis(curves.get(TOKENS)) if name == "tokens" else None


def _span(job: JobView) -> tuple[float, float]:
    """(first start, seconds up to the last sign of life)."""
    began = job.started_at or job.created_at
    return began, (job.finished_at or job.heartbeat_at or began) - began


def _shades(
    database: Database,
    job: JobView,
    chart: Chart,
    curves: Mapping[str, Curve],
    axis: Axis | None,
) -> list[Shade]:
    """Attempts by their steps; by time the warm-up, the held-out gates and the waits between."""
    if axis is None or axis.name == "tokens":
        return _attempts(database, job, chart, axis or Axis(), curves)
    began, seconds = _span(job)
    unit, _ = charts.time_unit(seconds)
    found = []
    warmup = series.summaries(database, job.id, ["warmup/loss"]).get("warmup/loss")
    if warmup and warmup.first_at is not None and warmup.last_at is not None:
        ends = (warmup.first_at - began) / unit, (warmup.last_at - began) / unit
        found.append(Shade("warm-up", *ends))
    ended = None
    for attempt in views.attempts(database, job.id):
        if ended is not None:
            waited = (ended - began) / unit, (attempt.started_at - began) / unit
            found.append(Shade("not running", *waited))
        ended = attempt.ended_at
    if HELDOUT in chart.series and HELDOUT in curves:
        found += [
            Shade("gate", axis.at(gate.step), (gate.at - began) / unit)
            for gate in curves[HELDOUT].points[-charts.MOST_GAPS :]
            if gate.at is not None
        ]
    return found


def _attempts(
    database: Database, job: JobView, chart: Chart, axis: Axis, curves: Mapping[str, Curve]
) -> list[Shade]:
    mine = [name for name in chart.series if name in curves]
    if job.attempt < 2 or not mine:
        return []
    began = series.attempts_began(database, job.id, mine[0])
    ends = [step for _, step in began[1:]] + [curves[mine[0]].points[-1].step]
    return [
        Shade(f"attempt {number}", axis.at(step), axis.at(end))
        for (number, step), end in zip(began, ends, strict=True)
        if number % 2 == 0
    ]


def _table(request: Request, database: Database, job_id: int, chart: Chart) -> HTMLResponse:
    job = views.get_job(database, job_id)
    most = charts.MOST_TABLE_ROWS
    newest = {name: series.tail(database, job_id, name, most) for name in chart.series}
    known = series.summaries(database, job_id, chart.series)
    n = max((summary.n for summary in known.values()), default=0)
    table = charts.table(chart, newest, n)
    context = {"job": job, "table": table, "title": f"{chart.title} · job {job_id}"}
    return page(request, "chart_table.html", context)
