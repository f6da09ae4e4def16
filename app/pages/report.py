"""The morning report: what happened, can I trust it, what next; and what a person decides on it.

Read from the kept snapshot of a night that is over; what is decided stands beside it.
"""

from __future__ import annotations

import datetime
import time
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from app.parts import DatabasePart
from app.report_file import context_of, file_name, render_file
from app.templating import page
from worker.report import choices
from worker.report.snapshot import EARLIEST, latest_morning, report_of

router = APIRouter(prefix="/report", include_in_schema=False)

BROWSER = "browser"
ProposalKey = Annotated[str, Path(max_length=60)]


@router.get("")
def report(
    request: Request,
    database: DatabasePart,
    date: datetime.date | None = None,
    *,
    download: Annotated[bool, Query()] = False,
) -> Response:
    """The night before a morning, today's by default; `download`: as one file."""
    now = time.time()
    found = report_of(database, date, now)
    if download:
        headers = {"Content-Disposition": f'attachment; filename="{file_name(found)}"'}
        return HTMLResponse(render_file(database, found, now), headers=headers)
    one = datetime.timedelta(days=1)
    context = {
        **context_of(database, found),
        "title": f"Report {found.day}",
        "live": True,
        "now": now,
        "before": found.day - one if found.day > EARLIEST else None,
        "behind": found.day + one if found.day < latest_morning(database, now) else None,
        "running": found.begin <= now < found.end,
        "begun": now >= found.begin,
    }
    return page(request, "report.html", context)


@router.post("/{date}/proposals/{key}/approve")
def approve(date: datetime.date, key: ProposalKey, database: DatabasePart) -> RedirectResponse:
    """Queue exactly what the proposal shows, once; then the report."""
    choices.approve(database, report_of(database, date, time.time()), key, actor=BROWSER)
    return _to(date)


@router.post("/{date}/proposals/{key}/drop")
def drop(date: datetime.date, key: ProposalKey, database: DatabasePart) -> RedirectResponse:
    """Remember that it is not wanted; then the report."""
    choices.drop(database, report_of(database, date, time.time()), key, actor=BROWSER)
    return _to(date)


def _to(date: datetime.date) -> RedirectResponse:
    return RedirectResponse(f"/report?date={date}#next-h", HTTPStatus.SEE_OTHER)
