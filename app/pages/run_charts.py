"""The charts of a run: the curated ones, every recorded series, their columns and their tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from app.charts import charts
from app.charts.drawings import AxisName, View, drawing_json
from app.charts.panels import (
    BENCHES,
    CHARTS,
    HELDOUT,
    POOL,
    SOURCES,
    WARMUP,
    Chart,
    by_bench,
    by_source,
    curated,
    more,
    of_one,
)
from app.web import table_file
from app.web.dependencies import NO_NUL, DatabaseDep, JobId, StepRange
from app.web.templating import page
from engine.contract.sources.benches import label_of
from worker.db.connection import Database
from worker.db.metrics import LONGEST_NAME
from worker.read import jobs, series
from worker.read.benches import BenchLine
from worker.read.jobs import JobView
from worker.read.series import MOST_POINTS, Steps, Summary
from worker.screen import folded

router = APIRouter(prefix="/jobs/{job_id}", include_in_schema=False)

MOST_LISTED = 200
BESIDE = MOST_POINTS // 2
"""Points of a line on a chart that shares the page's width with another one."""
SeriesName = Annotated[str, Query(max_length=LONGEST_NAME, pattern=NO_NUL)]
Smoothing = Annotated[str, Field(pattern=r"^0(\.\d{1,3})?$")]
"""The share of a moving average that stays at each value, below one."""


@dataclass(frozen=True)
class Panel:
    """A chart with its sentence."""

    chart: Chart
    summary: str
    values: bool
    """Whether there is anything to draw."""
    points: int = BESIDE


@dataclass(frozen=True)
class Row:
    """A chart of the list: one series, or a panel of several."""

    key: str
    """What the address names where it stands open."""
    title: str
    said: str
    address: str
    """Of its columns is this with `.json`, of its table this, of its file this with `.csv`."""
    query: str = ""

    @property
    def columns(self) -> str:
        """Where its drawing is."""
        return f"{self.address}.json{self.query}"

    @property
    def table(self) -> str:
        """Where its values are read."""
        return f"{self.address}{self.query}"

    @property
    def csv(self) -> str:
        """Where they are as a file."""
        return f"{self.address}.csv{self.query}"


@dataclass(frozen=True)
class Listed:
    """The panels and recorded series that a search finds."""

    rows: Sequence[Row]
    n: int
    """How many the search finds."""
    every: int
    """How many there are."""

    @property
    def words(self) -> str:
        """How much of all of it is listed."""
        told = f"{len(self.rows)} of {self.every} panels and series"
        if self.n == len(self.rows):
            return f"{told}."
        return f"{told}; {self.n} hold these words, search for more of them to see the others."


def panels(
    job: JobView, known: Mapping[str, Summary], gap: charts.Gap | None, remark: str
) -> list[Panel]:
    """The charts that this kind opens with; before the first step, the warm-up too."""
    first, *others = curated(job.kind)
    learnt = _has_values(first, known)
    said = f"{charts.summary(first, known, gap)} {remark}".rstrip()
    others = [by_bench(_benches(job)), by_source(known), *others]
    warmed = [WARMUP] if not learnt and "warmup/loss" in known else []
    return [
        Panel(first, said, learnt, MOST_POINTS),
        *(
            Panel(chart, charts.summary(chart, known), values=True)
            for chart in [*others, *warmed]
            if _has_values(chart, known)
        ),
    ]


def of_benches(lines: Sequence[BenchLine], known: Mapping[str, Summary]) -> list[Panel]:
    """A chart of each source and bench, and of the own rows beside one that decides; the other own
    ones stand on the first chart.
    """
    found = [of_one(f"heldout/{line.name}") for line in lines if not line.decides]
    return [
        Panel(chart, charts.summary(chart, known), values=True)
        for chart in found
        if _has_values(chart, known)
    ]


def _has_values(chart: Chart, known: Mapping[str, Summary]) -> bool:
    return any(line.series in known for line in chart.lines)


def outline(database: Database, job: JobView, steps: Steps, chart: Chart) -> charts.Table:
    """The same part of a run as a chart shows, in the few rows of a page without scripts."""
    found = series.curves(database, job.id, chart.series, steps, charts.MOST_OUTLINE_ROWS)
    return charts.outline(chart, found, series.gaps_of(job.result, steps))


def listed(job: JobView, known: Mapping[str, Summary], wanted: str) -> Listed:
    """The panels beside the curated ones and every series; those that hold the wanted words."""
    every = [*_more(job, known), *(_of_series(job.id, name, known[name]) for name in sorted(known))]
    words = folded(wanted).split()
    rows = [row for row in every if all(word in folded(f"{row.title} {row.key}") for word in words)]
    return Listed(rows[:MOST_LISTED], len(rows), len(every))


def _more(job: JobView, known: Mapping[str, Summary]) -> Iterator[Row]:
    for chart in more(job.kind):
        if _has_values(chart, known):
            lines = ", ".join(line.label for line in chart.lines if line.series in known)
            address = f"/jobs/{job.id}/charts/{chart.name}"
            yield Row(f"panel:{chart.name}", chart.title, lines, address)


def _of_series(job_id: int, name: str, summary: Summary) -> Row:
    points = "1 value" if summary.n == 1 else f"{summary.n} values"
    last = of_one(name).lines[0].text(summary.last)
    said = f"{last} at step {summary.last_step}, {points}"
    return Row(name, name, said, f"/jobs/{job_id}/series", f"?{urlencode({'name': name})}")


def latest_gap(database: Database, job_id: int, known: Mapping[str, Summary]) -> charts.Gap | None:
    """The gap at the newest gate."""
    gate = known.get(HELDOUT)
    if gate is None:
        return None
    pool = series.tail(database, job_id, POOL, charts.RECENT, up_to=gate.last_step)
    return charts.gap_at(gate.last_step, gate.last, pool)


class Wanted(StepRange):
    """The part of a run that a drawing shows, along which axis, and in how many points."""

    axis: AxisName = "step"
    points: int = Field(MOST_POINTS, ge=10, le=MOST_POINTS)
    smooth: Smoothing = "0"

    def view(self) -> View:
        """The same, for a drawing."""
        steps = Steps(self.first, self.last)
        return View(self.axis, steps, self.points, float(self.smooth))


WantedPart = Annotated[Wanted, Query()]


@router.get("/charts/{name}.json")
def chart_drawing(job_id: JobId, name: str, database: DatabaseDep, wanted: WantedPart) -> Response:
    """The columns of one chart, of all its steps or of those `from` … `to`."""
    job = jobs.get_job(database, job_id)
    return _json(drawing_json(database, job, _chart(name, database, job), wanted.view()))


@router.get("/charts/{name}.csv")
def chart_file(job_id: JobId, name: str, database: DatabaseDep, wanted: WantedPart) -> Response:
    """The values of one chart, of all its steps or of those `from` … `to`."""
    job = jobs.get_job(database, job_id)
    return _file(database, job, _chart(name, database, job), wanted)


@router.get("/charts/{name}")
def chart_table(request: Request, job_id: JobId, name: str, database: DatabaseDep) -> HTMLResponse:
    """The newest values of one chart as a table."""
    job = jobs.get_job(database, job_id)
    return _table(request, database, job_id, _chart(name, database, job))


class WantedSeries(Wanted):
    """The same of any one series."""

    name: str = Field(max_length=LONGEST_NAME, pattern=NO_NUL)


@router.get("/series.json")
def series_drawing(
    job_id: JobId,
    database: DatabaseDep,
    wanted: Annotated[WantedSeries, Query()],
) -> Response:
    """The columns of any one series."""
    chart = of_one(wanted.name)
    return _json(drawing_json(database, jobs.get_job(database, job_id), chart, wanted.view()))


@router.get("/series.csv")
def series_file(
    job_id: JobId, database: DatabaseDep, wanted: Annotated[WantedSeries, Query()]
) -> Response:
    """The values of any one series."""
    return _file(database, jobs.get_job(database, job_id), of_one(wanted.name), wanted)


@router.get("/series")
def series_table(
    request: Request, job_id: JobId, name: SeriesName, database: DatabaseDep
) -> HTMLResponse:
    """The newest values of any one series as a table."""
    return _table(request, database, job_id, of_one(name))


def _json(text: str) -> Response:
    return Response(text, media_type="application/json")


def _file(database: Database, job: JobView, chart: Chart, wanted: Wanted) -> Response:
    """A row a step, a column a series; empty where a step has no value of it."""
    found = series.values(database, job.id, chart.series, Steps(wanted.first, wanted.last))
    names = [name for name in chart.series if name in found]
    rows: dict[int, dict[str, float | None]] = {}
    for name in names:
        for step, value in found[name]:
            rows.setdefault(step, {"step": step, **dict.fromkeys(names)})[name] = value
    types = {"step": int, **dict.fromkeys(names, float)}
    text = b"".join(table_file.written((rows[step] for step in sorted(rows)), types, "csv"))
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", chart.name)
    saved_as = {"Content-Disposition": f'attachment; filename="job-{job.id}-{name}.csv"'}
    return Response(text, media_type=table_file.MEDIA_TYPES["csv"], headers=saved_as)


def _benches(job: JobView) -> dict[str, str]:
    """What people call each bench of a job, by its name."""
    benches = job.config.get("heldout")
    known = (
        [one for one in benches if isinstance(one, Mapping)] if isinstance(benches, list) else []
    )
    return {
        str(one.get("name")): label_of(str(one.get("name")), one.get("shots", 0)) for one in known
    }


def _chart(name: str, database: Database, job: JobView) -> Chart:
    if name == SOURCES:
        return by_source(series.summaries(database, job.id))
    if name == BENCHES:
        return by_bench(_benches(job))
    try:
        return CHARTS[name]
    except KeyError:
        known = ", ".join([*CHARTS, BENCHES, SOURCES])
        raise HTTPException(404, f"{name[:100]!r} is no chart; known: {known}") from None


def _table(request: Request, database: Database, job_id: int, chart: Chart) -> HTMLResponse:
    job = jobs.get_job(database, job_id)
    most = charts.MOST_TABLE_ROWS
    newest = {name: series.tail(database, job_id, name, most) for name in chart.series}
    known = series.summaries(database, job_id, chart.series)
    n = max((summary.n for summary in known.values()), default=0)
    table = charts.table(chart, newest, n, series.gaps_of(job.result))
    title = f"{chart.title} · job {job_id}"
    context = {"job": job, "table": table, "title": title}
    return page(request, "chart_table.html", context)
