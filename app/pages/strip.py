"""The status strip's live part, and Stop all: its question and its deed."""

from __future__ import annotations

import time
from http import HTTPStatus

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse

from app.forms.requests import BROWSER
from app.web.dependencies import SETTLED, DatabaseDep
from app.web.templating import page
from worker.read import jobs
from worker.schedule import policy
from worker.schedule.stop_all import stop_all

router = APIRouter(include_in_schema=False)


@router.get("/strip")
def strip(request: Request) -> HTMLResponse:
    """What every page's strip asks for when the stream names a change."""
    return page(request, "strip.html", {})


@router.get("/stop")
def ask(request: Request, database: DatabaseDep) -> HTMLResponse:
    """What Stop all would do now, and the button that does it."""
    standing = policy.standing(database)
    context = {
        "title": "Stop all",
        "running": jobs.running(database),
        "paused": jobs.paused(database),
        "armed": bool(standing and standing.armed),
        "cron_line": bool(standing and standing.cron_line),
    }
    return page(request, "stop.html", context)


@router.post("/stop", dependencies=SETTLED)
def stop(database: DatabaseDep) -> RedirectResponse:
    """Pause, cancel what runs, disarm; then the board, which shows all three."""
    stop_all(database, actor=BROWSER, now=time.time())
    return RedirectResponse("/", HTTPStatus.SEE_OTHER)
