"""Buttons of one job: cancel, requeue, retry and move, as plain POST forms.

Each leads back to a page; what is refused comes as the error page that says why.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

from fastapi import APIRouter
from starlette.responses import RedirectResponse

from app.forms.requests import BROWSER
from app.web.dependencies import SETTLED, DatabaseDep, JobId
from worker.queue import control, order

router = APIRouter(include_in_schema=False)


@router.post("/jobs/{job_id}/cancel", dependencies=SETTLED)
def cancel(job_id: JobId, database: DatabaseDep) -> RedirectResponse:
    """End a job for good, then its page."""
    control.cancel(database, job_id, actor=BROWSER)
    return _job_page(job_id)


@router.post("/jobs/{job_id}/requeue", dependencies=SETTLED)
def requeue(job_id: JobId, database: DatabaseDep) -> RedirectResponse:
    """Put a running job back, then its page."""
    control.requeue(database, job_id, actor=BROWSER)
    return _job_page(job_id)


@router.post("/jobs/{job_id}/retry", dependencies=SETTLED)
def retry(job_id: JobId, database: DatabaseDep) -> RedirectResponse:
    """Queue a job again, to resume, then its page."""
    control.retry(database, job_id, actor=BROWSER)
    return _job_page(job_id)


@router.post("/jobs/{job_id}/retry-fresh", dependencies=SETTLED)
def retry_fresh(job_id: JobId, database: DatabaseDep) -> RedirectResponse:
    """Queue the same job from the beginning, then the new one's page."""
    return _job_page(control.retry_fresh(database, job_id, actor=BROWSER))


@router.post("/jobs/{job_id}/move/{to}")
def move(job_id: JobId, to: Literal["top", "bottom"], database: DatabaseDep) -> RedirectResponse:
    """Let a queued job run next or last, then the board."""
    order.move(database, job_id, {"to": to}, actor=BROWSER)
    return RedirectResponse("/", HTTPStatus.SEE_OTHER)


def _job_page(job_id: int) -> RedirectResponse:
    return RedirectResponse(f"/jobs/{job_id}", HTTPStatus.SEE_OTHER)
