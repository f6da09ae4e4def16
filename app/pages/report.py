"""The morning report: what happened, can I trust it, what next; and what a person decides on it.

Read from the kept snapshot of a night that is over; what is decided stands beside it.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlencode

import anyio.to_thread
from fastapi import APIRouter, Path, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from app.forms.requests import BROWSER, form_fields
from app.web.dependencies import DatabaseDep
from app.web.report_file import context_of, file_name, render_file
from app.web.templating import page
from engine.contract.errors import ConfigError, ConfigProblem
from worker.clock.window import EARLIEST
from worker.db.connection import Database
from worker.queue.refusals import AlreadyTriedError
from worker.read import feed
from worker.report import choices
from worker.report.snapshot import latest_morning, report_of

router = APIRouter(prefix="/report", include_in_schema=False)

ProposalKey = Annotated[str, Path(max_length=60)]


@dataclass(frozen=True)
class Refused:
    """The edit of a proposal that was not taken: what was typed, and why."""

    key: str
    typed: Mapping[str, str]
    problems: Sequence[ConfigProblem]


@router.get("")
def report(
    request: Request,
    database: DatabaseDep,
    date: datetime.date | None = None,
    *,
    download: Annotated[bool, Query()] = False,
) -> Response:
    """The night before a morning, today's by default; `download`: as one file.

    With `?part=live` what changes on it while the night goes on, or while somebody decides.
    """
    if download:
        now = time.time()
        found = report_of(database, date, now)
        headers = {"Content-Disposition": f'attachment; filename="{file_name(found)}"'}
        return HTMLResponse(render_file(database, found, now), headers=headers)
    return _page(request, database, date)


def _page(
    request: Request,
    database: Database,
    date: datetime.date | None,
    refused: Refused | None = None,
) -> HTMLResponse:
    # Read before the rest: what changes in between comes once more by the stream, never less.
    position = feed.last_change_id(database)
    now = time.time()
    found = report_of(database, date, now)
    one = datetime.timedelta(days=1)
    latest = latest_morning(database, now)
    context = {
        **context_of(database, found),
        "position": position,
        "title": f"Report {found.day}",
        "live": True,
        "now": now,
        "before": found.day - one if found.day > EARLIEST else None,
        "behind": found.day + one if found.day < latest else None,
        "since": latest if found.day + one == latest else None,
        "running": found.begin <= now < found.end,
        "begun": now >= found.begin,
        "refused": refused,
    }
    status = HTTPStatus.UNPROCESSABLE_ENTITY if refused else HTTPStatus.OK
    return page(request, "report.html", context, status=status)


@router.post("/{date}/proposals/{key}/approve")
def approve(date: datetime.date, key: ProposalKey, database: DatabaseDep) -> RedirectResponse:
    """Do exactly what the proposal shows, once; then the report.

    What was tried already is asked about in the form, which shows that result and can go on.
    """
    try:
        choices.approve(database, report_of(database, date, time.time()), key, actor=BROWSER)
    except AlreadyTriedError:
        form = urlencode({"proposal": key, "date": date.isoformat()})
        return RedirectResponse(f"/new?{form}", HTTPStatus.SEE_OTHER)
    return _to(date, key)


@router.post("/{date}/proposals/{key}/edit")
async def edit(
    request: Request, date: datetime.date, key: ProposalKey, database: DatabaseDep
) -> Response:
    """Set other terms than those proposed, or note what was done instead; then the report.

    What is refused comes back in its form, each problem at its field.
    """
    given = await form_fields(request)

    def answered() -> Response:
        found = report_of(database, date, time.time())
        try:
            choices.edit(database, found, key, given, actor=BROWSER)
        except ConfigError as error:
            return _page(request, database, date, Refused(key, given, error.problems))
        return _to(date, key)

    return await anyio.to_thread.run_sync(answered)


@router.post("/{date}/proposals/{key}/drop")
def drop(date: datetime.date, key: ProposalKey, database: DatabaseDep) -> RedirectResponse:
    """Remember that it is not wanted; then the report."""
    choices.drop(database, report_of(database, date, time.time()), key, actor=BROWSER)
    return _to(date, key)


def _to(date: datetime.date, key: str) -> RedirectResponse:
    return RedirectResponse(f"/report?date={date}#proposal-{key}", HTTPStatus.SEE_OTHER)
