"""The compare page: is the difference real, and what caused it? Sweeps as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from app.charts import charts, overlay
from app.charts.boxes import Drawing
from app.charts.drawings import AxisName
from app.charts.overlay import OVERLAYS, Overlay, of_series
from app.charts.panels import TOKENS
from app.pages.answers import Shown, shown_of
from app.pages.ranking import ranking
from app.text import seeds
from app.text.headline import Headline, label
from app.web.dependencies import NO_NUL, DatabaseDep
from app.web.sweep_table import OWN_COLUMNS, group_axes, group_rows, sweep_rows
from app.web.templating import page
from engine.contract.errors import ConfigError
from worker.db.connection import Database
from worker.queue.states import State
from worker.read import jobs, series
from worker.read.comparison.compare import (
    FEWEST_JOBS,
    MOST_JOBS,
    CompareError,
    RowPage,
    Which,
    compare_jobs,
    find_rows,
)
from worker.read.comparison.heldout import gates_of
from worker.read.groups import groups_among
from worker.read.jobs import JobView
from worker.read.runs.filter import LONGEST
from worker.read.runs.run import Run
from worker.read.runs.table import matching, read
from worker.read.series import Curve

router = APIRouter(prefix="/compare", include_in_schema=False)

_ROWS = 10
_SUGGESTED = 12
_MOST_DIFFERING = 25
"""Settings; more of them, as of two kinds, are folded away."""
_Number = Annotated[int, Query(ge=1, le=2**63 - 1)]
Numbers = Annotated[list[_Number] | None, Query(max_length=50)]
_MOST_SERIES = 12
Names = Annotated[
    list[Annotated[str, Query(max_length=200, pattern=NO_NUL)]] | None,
    Query(max_length=_MOST_SERIES),
]
WHICH_WORDS: Mapping[Which, str] = {
    Which.LOST: "only the first solved",
    Which.GAINED: "only the second solved",
    Which.NEITHER: "neither solved",
    Which.BOTH: "both solved",
}


@dataclass(frozen=True)
class Overlaid:
    """One drawing with its sentence."""

    name: str
    """Of its place on the page."""
    chart: Overlay
    of: int
    """Runs that have the series."""
    summary: str
    address: str
    outline: charts.Table


@dataclass(frozen=True)
class Pair:
    """One row as two runs answered it."""

    id: str
    first: Shown
    second: Shown

    @property
    def drawings(self) -> list[Drawing]:
        """Both, where both have boxes."""
        found = [self.first.drawing, self.second.drawing]
        return [one for one in found if one is not None] if None not in found else []


@dataclass(frozen=True)
class Look:
    """How the charts are drawn; all of it stands in the address."""

    series: Sequence[str] = ()
    """Those that were picked; empty: the usual ones."""
    axis: AxisName = "step"
    seeds: bool = False
    """Runs that differ in their seed alone as one mean; by steps alone, for at no token and no
    minute two runs measured."""

    @property
    def query(self) -> list[tuple[str, str]]:
        """As the address says it."""
        found = [("series", name) for name in self.series]
        found += [("axis", self.axis)] * (self.axis != "step")
        return found + [("seeds", "true")] * self.seeds


@router.get("")
def compare(
    request: Request,
    database: DatabaseDep,
    *,
    job: Numbers = None,
    a: _Number | None = None,
    b: _Number | None = None,
    q: Annotated[str, Query(max_length=10 * LONGEST, pattern=NO_NUL)] = "",
    series: Names = None,
    axis: AxisName = "step",
    seeds: bool = False,
) -> HTMLResponse:
    """`?job=1&job=2` or `?a=1&b=2`; `?q=` compares every run that a filter of the runs page leaves,
    the best first; `?sweep=1` is a table; without any, a form.

    Jobs beside a sweep are the chosen ones of its rows.
    """
    query = request.query_params
    if query.get("sweep", "").isdecimal():
        order = query.get("sort", "job")
        return _sweep(request, database, int(query["sweep"][:18]), order, chosen=job or [])
    numbers = [*(number for number in (a, b) if number is not None), *(job or [])]
    look = Look([name for name in series or () if name.strip()], axis, seeds)
    if q.strip() and not numbers:
        try:
            numbers = _matching(database, q)
        except (ConfigError, CompareError) as error:
            return page(
                request, "compare.html", {**_empty(database), "problem": str(error), "q": q}
            )
    if not numbers:
        return page(request, "compare.html", _empty(database))
    return _jobs(request, database, numbers, query, look)


def _matching(database: Database, q: str) -> list[int]:
    """The runs that a filter leaves, the best first. Raises ConfigError, CompareError."""
    reading = read(database)
    left = matching(reading.runs, q, reading.columns)
    if not FEWEST_JOBS <= len(left) <= MOST_JOBS:
        raise CompareError(f"{len(left)} runs match {q!r}; name {FEWEST_JOBS} to {MOST_JOBS}")
    having = {run.id for run in left if gates_of(jobs.get_job(database, run.id))}
    return [run.id for run in sorted(left, key=lambda run: (run.id not in having, _score(run)))]


def _score(run: Run) -> tuple[bool, float]:
    """The highest first, and those without one last."""
    after = run.change.after if run.change else None
    return after is None, -(after or 0.0)


@router.get("/charts/{name}.json")
def chart(
    name: str,
    database: DatabaseDep,
    *,
    job: Numbers = None,
    series: Names = None,
    axis: AxisName = "step",
    seeds: bool = False,
) -> Response:
    """The columns of one drawing: a usual one by its name, or `series` with that of the series."""
    found = of_series(series[0]) if name == "series" and series else OVERLAYS.get(name)
    if found is None:
        known = ", ".join(OVERLAYS)
        raise HTTPException(404, f"{name[:60]!r} is no chart of the comparison; known: {known}")
    compared = [jobs.get_job(database, number) for number in (job or [])[:MOST_JOBS]]
    curves = _curves(database, compared, found)
    groups = _seed_groups(database, compared) if seeds and axis == "step" else ()
    axes = _axes(database, compared, curves, axis)
    drawn = overlay.drawing(found, compared, curves, axes=axes, groups=groups)
    return Response(charts.encoded(drawn), media_type="application/json")


def _axes(
    database: Database, compared: Sequence[JobView], curves: Mapping[str, Curve], axis: AxisName
) -> dict[str, charts.Axis]:
    if axis == "time":
        return overlay.time_axes(compared, curves)
    if axis == "tokens":
        return overlay.token_axes(_curves(database, compared, of_series(TOKENS)))
    return {}


def _seed_groups(database: Database, compared: Sequence[JobView]) -> list[list[int]]:
    """Of the runs that are compared, those that differ in their seed alone."""
    numbers = [job.id for job in compared]
    found = []
    for group in groups_among(database, numbers):
        members = {run.job_id for run in group.runs}
        found.append([number for number in numbers if number in members])
    return found


def _jobs(
    request: Request,
    database: Database,
    numbers: Sequence[int],
    query: Mapping[str, str],
    look: Look,
) -> HTMLResponse:
    try:
        found = compare_jobs(database, numbers)
    except CompareError as error:
        context = {**_empty(database), "problem": str(error), "chosen": list(numbers)}
        return page(request, "compare.html", context)
    compared = [jobs.get_job(database, number) for number in numbers]
    other = _other(numbers, query.get("other"))
    which = _which(query.get("rows"))
    known = next((one.picked for one in found.against if one.job_id == other), None)
    rows = None
    if known is not None and known.paired:
        rows = find_rows(
            database, numbers[0], other, which, after=_after(query.get("after")), limit=_ROWS
        )
    context = {
        "title": "compare " + " · ".join(label(one) for one in compared[:3]),
        "q": query.get("q", ""),
        "look": look,
        "ranking": ranking(found, [Headline.of(one) for one in compared]),
        "problem": None,
        "chosen": list(numbers),
        "suggested": [],
        "found": found,
        "details": list(zip(found.against, found.sides[1:], strict=True)),
        "of_seeds": any(len(group) > 1 for group in _seed_groups(database, compared)),
        "of_groups": len(groups_among(database, [numbers[0], other])) > 1,
        "jobs": compared,
        "charts": _charts(database, compared, look),
        "known_series": sorted(series.summaries(database, numbers[0])),
        "other": other,
        "which": which,
        "which_words": WHICH_WORDS,
        "rows": rows,
        "pairs": _pairs(rows, numbers[0], other),
        "address": _Address(numbers, other, which, look),
        "most_differing": _MOST_DIFFERING,
        "differing": [row for row in found.settings if row.differs],
        "same": [row for row in found.settings if not row.differs],
        "sweep": None,
    }
    return page(request, "compare.html", context)


def _sweep(
    request: Request, database: Database, sweep_id: int, order: str, *, chosen: Sequence[int]
) -> HTMLResponse:
    found = jobs.get_sweep(database, sweep_id)
    compared = jobs.list_jobs(database, sweep_id=sweep_id, limit=jobs.MAX_PAGE)
    groups = groups_among(database, found.job_ids)
    context = {
        **_empty(database),
        "title": f"sweep {found.name}",
        "sweep": found,
        "sweep_rows": sweep_rows(found, compared, order),
        "columns": [*found.axes, *OWN_COLUMNS],
        "groups": group_rows(found, compared, groups),
        "group_axes": group_axes(found, groups),
        "words": seeds,
        "order": order,
        "chosen": chosen,
    }
    return page(request, "compare.html", context)


def _empty(database: Database) -> dict[str, Any]:
    """The form, with the newest finished runs to choose from: others have nothing to compare."""
    finished = jobs.list_jobs(database, state=State.SUCCEEDED, limit=_SUGGESTED)
    return {
        "title": "compare",
        "problem": None,
        "chosen": [],
        "found": None,
        "sweep": None,
        "q": "",
        "suggested": [(job, Headline.of(job)) for job in finished],
    }


class _Address:
    """Links to this page that keep the jobs."""

    def __init__(self, numbers: Sequence[int], other: int, which: Which, look: Look) -> None:
        self._jobs = [("job", number) for number in numbers]
        self._look = look
        self._chosen: dict[str, Any] = {"other": other, "rows": which.value}

    def __call__(self, **changes: Any) -> str:
        kept = {**self._chosen, **changes}
        rest = [(name, value) for name, value in kept.items() if value is not None]
        return f"/compare?{urlencode([*self._jobs, *self._look.query, *rest])}"

    def turned(self, first: int) -> str:
        """The same runs, the others held against this one."""
        others = [pair for pair in self._jobs if pair[1] != first]
        return f"/compare?{urlencode([('job', first), *others, *self._look.query])}"

    @property
    def usual(self) -> str:
        """The same runs with the usual charts."""
        return f"/compare?{urlencode(self._jobs)}"


def _other(numbers: Sequence[int], wanted: str | None) -> int:
    """Which run's rows stand beside the first one's."""
    if wanted and wanted.isdecimal() and int(wanted[:18]) in numbers[1:]:
        return int(wanted[:18])
    return numbers[1]


def _which(wanted: str | None) -> Which:
    return Which(wanted) if wanted in set(Which) else Which.LOST


def _after(wanted: str | None) -> int:
    return int(wanted[:15]) if wanted and wanted.isdecimal() else -1


def _pairs(rows: RowPage | None, first: int, other: int) -> list[Pair]:
    return [
        Pair(row.id, shown_of(first, row.first), shown_of(other, row.second))
        for row in (rows.rows if rows else ())
    ]


def _curves(
    database: Database, compared: Sequence[JobView], one: Overlay, most: int = series.MOST_POINTS
) -> dict[str, Curve]:
    """By the job's number."""
    return {
        str(job.id): curve
        for job in compared
        for curve in series.curves(database, job.id, [one.series], most=most).values()
    }


def _charts(database: Database, compared: Sequence[JobView], look: Look) -> list[Overlaid]:
    """Those that were picked, or the usual ones, that at least one of the runs has."""
    wanted = [of_series(name) for name in look.series] or list(OVERLAYS.values())
    names = [one.series for one in wanted]
    known = [series.summaries(database, job.id, names) for job in compared]
    found = []
    for place, one in enumerate(wanted):
        of_runs = {
            str(job.id): mine[one.series]
            for job, mine in zip(compared, known, strict=True)
            if one.series in mine
        }
        if of_runs:
            chart = one.chart(compared)
            table = charts.outline(
                chart, _curves(database, compared, one, charts.MOST_OUTLINE_ROWS)
            )
            name = one.name if one.name in OVERLAYS else f"series-{place}"
            address = _chart_address(one, compared, look)
            words = charts.summary(chart, of_runs)
            found.append(Overlaid(name, one, len(of_runs), words, address, table))
    return found


def _chart_address(one: Overlay, compared: Sequence[JobView], look: Look) -> str:
    mine = [("series", one.series)] if one.name == "series" else []
    drawn = [pair for pair in look.query if pair[0] != "series"]
    query = urlencode([*(("job", str(job.id)) for job in compared), *mine, *drawn])
    return f"/compare/charts/{one.name}.json?{query}"
