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
from app.charts.overlay import OVERLAYS, Overlay
from app.pages.samples import Shown, shown_of
from app.text import seeds
from app.text.headline import Headline, label
from app.web.dependencies import DatabaseDep
from app.web.sweep_table import OWN_COLUMNS, group_axes, group_rows, sweep_rows
from app.web.templating import page
from worker.db.connection import Database
from worker.queue.states import State
from worker.read import jobs, series
from worker.read.comparison.compare import (
    MOST_JOBS,
    CompareError,
    RowPage,
    Which,
    compare_jobs,
    find_rows,
)
from worker.read.groups import groups_among
from worker.read.jobs import JobView
from worker.read.series import Curve

router = APIRouter(prefix="/compare", include_in_schema=False)

_ROWS = 10
_SUGGESTED = 12
_MOST_DIFFERING = 25
"""Settings; more of them, as of two kinds, are folded away."""
_Number = Annotated[int, Query(ge=1, le=2**63 - 1)]
Numbers = Annotated[list[_Number] | None, Query(max_length=50)]
WHICH_WORDS: Mapping[Which, str] = {
    Which.LOST: "only the first solved",
    Which.GAINED: "only the second solved",
    Which.NEITHER: "neither solved",
    Which.BOTH: "both solved",
}


@dataclass(frozen=True)
class Overlaid:
    """One drawing with its sentence."""

    chart: Overlay
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


@router.get("")
def compare(
    request: Request,
    database: DatabaseDep,
    job: Numbers = None,
    a: _Number | None = None,
    b: _Number | None = None,
) -> HTMLResponse:
    """`?job=1&job=2` or `?a=1&b=2`; `?sweep=1` is a table; without any, a form.

    Jobs beside a sweep are the chosen ones of its rows.
    """
    query = request.query_params
    if query.get("sweep", "").isdecimal():
        order = query.get("sort", "job")
        return _sweep(request, database, int(query["sweep"][:18]), order, chosen=job or [])
    numbers = [*(number for number in (a, b) if number is not None), *(job or [])]
    if not numbers:
        return page(request, "compare.html", _empty(database))
    return _jobs(request, database, numbers, query)


@router.get("/charts/{name}.json")
def chart(name: str, database: DatabaseDep, job: Numbers = None) -> Response:
    """The columns of one drawing."""
    found = OVERLAYS.get(name)
    if found is None:
        known = ", ".join(OVERLAYS)
        raise HTTPException(404, f"{name[:60]!r} is no chart of the comparison; known: {known}")
    compared = [jobs.get_job(database, number) for number in (job or [])[:MOST_JOBS]]
    drawn = charts.encoded(overlay.drawing(found, compared, _curves(database, compared, found)))
    return Response(drawn, media_type="application/json")


def _jobs(
    request: Request, database: Database, numbers: Sequence[int], query: Mapping[str, str]
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
        "problem": None,
        "chosen": list(numbers),
        "suggested": [],
        "found": found,
        "of_groups": len(groups_among(database, [numbers[0], other])) > 1,
        "jobs": compared,
        "headlines": [Headline.of(one) for one in compared],
        "charts": _charts(database, compared),
        "other": other,
        "which": which,
        "which_words": WHICH_WORDS,
        "rows": rows,
        "pairs": _pairs(rows, numbers[0], other),
        "address": _Address(numbers, other, which),
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
        "suggested": [(job, Headline.of(job)) for job in finished],
    }


class _Address:
    """Links to this page that keep the jobs."""

    def __init__(self, numbers: Sequence[int], other: int, which: Which) -> None:
        self._jobs = [("job", number) for number in numbers]
        self._chosen: dict[str, Any] = {"other": other, "rows": which.value}

    def __call__(self, **changes: Any) -> str:
        kept = {**self._chosen, **changes}
        rest = [(name, value) for name, value in kept.items() if value is not None]
        return f"/compare?{urlencode([*self._jobs, *rest])}"


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


def _charts(database: Database, compared: Sequence[JobView]) -> list[Overlaid]:
    """Those that at least one of the runs has."""
    known = [series.summaries(database, job.id, overlay.EVERY_SERIES) for job in compared]
    query = urlencode([("job", job.id) for job in compared])
    found = []
    for one in OVERLAYS.values():
        of_runs = {
            str(job.id): mine[one.series]
            for job, mine in zip(compared, known, strict=True)
            if one.series in mine
        }
        if of_runs:
            address = f"/compare/charts/{one.name}.json?{query}"
            chart = one.chart(compared)
            table = charts.outline(
                chart, _curves(database, compared, one, charts.MOST_OUTLINE_ROWS)
            )
            found.append(Overlaid(one, charts.summary(chart, of_runs), address, table))
    return found
