"""What may be changed of a job that waits: name, priority, start. Other settings make another job.

A plain form that leads back to its row; what is refused stands beside its field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from app.forms.requests import BROWSER, form_fields, with_numbers
from app.text import wording
from app.web.dependencies import DatabaseDep, JobId
from app.web.templating import page
from engine.contract.errors import ConfigError, ConfigProblem
from worker.db.connection import Database
from worker.queue import control
from worker.read import jobs
from worker.read.jobs import JobView

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Field:
    """One of the three."""

    name: str
    label: str
    value: str
    problems: Sequence[ConfigProblem]
    help: str = ""


@router.get("/queue/jobs/{job_id}/edit")
def ask(request: Request, job_id: JobId, database: DatabaseDep) -> HTMLResponse:
    """The form, filled with what holds now."""
    return _page(request, jobs.get_job(database, job_id), {}, ())


@router.post("/queue/jobs/{job_id}/edit")
async def edit(request: Request, job_id: JobId, database: DatabaseDep) -> Response:
    """Change the job, then its row; or the form again. Raises WrongStateError once it began."""
    typed = await form_fields(request)

    def answered() -> Response:
        try:
            control.edit(database, job_id, _changes(database, job_id, typed), actor=BROWSER)
        except ConfigError as error:
            return _page(request, jobs.get_job(database, job_id), typed, error.problems)
        return RedirectResponse(f"/queue#q-{job_id}", HTTPStatus.SEE_OTHER)

    return await anyio.to_thread.run_sync(answered)


def _changes(database: Database, job_id: int, typed: Mapping[str, str]) -> dict[str, Any]:
    """What differs from what holds: what nobody touched is not written again."""
    found = jobs.get_job(database, job_id)
    given = {name: text for name, text in typed.items() if text.strip() != _now(found)[name]}
    changes = with_numbers(given, {"priority"})
    return {"not_before": None, **changes} if "not_before" in given else changes


def _now(job: JobView) -> dict[str, str]:
    starts = wording.minute(job.not_before) if job.not_before else ""
    return {"name": job.name, "priority": str(job.priority), "not_before": starts}


def _page(
    request: Request, job: JobView, typed: Mapping[str, str], problems: Sequence[ConfigProblem]
) -> HTMLResponse:
    known = _now(job) | dict(typed)
    told = (
        ("name", "name", ""),
        ("priority", "priority", "−100 to 100; higher runs first."),
        ("not_before", "not before", "Earliest start: `+2h`, `2030-12-01 22:00`; empty for none."),
    )
    fields = [
        Field(name, label, known[name], [one for one in problems if one.field == name], words)
        for name, label, words in told
    ]
    context = {"title": f"Edit {job.name}", "job": job, "fields": fields}
    status = HTTPStatus.UNPROCESSABLE_ENTITY if problems else HTTPStatus.OK
    return page(request, "queue_edit.html", context, status=status)
