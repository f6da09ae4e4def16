"""Buttons: what people do to jobs, to the queue and to autonomy from a page, as plain POST forms.

Each leads back to a page; what is refused comes as the error page that says why, or beside the
field it is about.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal

import anyio.to_thread
from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from app.pages import queue as queue_page
from app.parts import DatabasePart, DrainsPart, JobId, SettingsPart
from app.requests import BROWSER, form_fields
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.kinds import text_problems
from worker import autonomy
from worker.database import Database
from worker.jobs import control, order, pausing
from worker.lane import policy
from worker.lane.cron import CrontabError

router = APIRouter(include_in_schema=False)

Back = Annotated[Literal["/", "/queue"], Form()]
"""The page whose button was pressed."""


@router.post("/jobs/{job_id}/cancel")
def cancel(job_id: JobId, database: DatabasePart) -> RedirectResponse:
    """End a job for good, then its page."""
    control.cancel(database, job_id, actor=BROWSER)
    return _job_page(job_id)


@router.post("/jobs/{job_id}/requeue")
def requeue(job_id: JobId, database: DatabasePart) -> RedirectResponse:
    """Put a running job back, then its page."""
    control.requeue(database, job_id, actor=BROWSER)
    return _job_page(job_id)


@router.post("/jobs/{job_id}/retry")
def retry(job_id: JobId, database: DatabasePart) -> RedirectResponse:
    """Queue a job again, to resume, then its page."""
    control.retry(database, job_id, actor=BROWSER)
    return _job_page(job_id)


@router.post("/jobs/{job_id}/retry-fresh")
def retry_fresh(job_id: JobId, database: DatabasePart) -> RedirectResponse:
    """Queue the same job from the beginning, then the new one's page."""
    return _job_page(control.retry_fresh(database, job_id, actor=BROWSER))


@router.post("/jobs/{job_id}/move/{to}")
def move(job_id: JobId, to: Literal["top", "bottom"], database: DatabasePart) -> RedirectResponse:
    """Let a queued job run next or last, then the board."""
    order.move(database, job_id, {"to": to}, actor=BROWSER)
    return _to("/")


@router.post("/queue/jobs/{job_id}/move")
def reorder(
    job_id: JobId,
    database: DatabasePart,
    before: Annotated[int | None, Form()] = None,
    after: Annotated[int | None, Form()] = None,
    to: Annotated[str | None, Form(max_length=10)] = None,
) -> RedirectResponse:
    """Move a queued job before or behind another one, or to an end; then its row of the queue."""
    given = {"before": before, "after": after, "to": to}
    wanted = {name: value for name, value in given.items() if value is not None}
    order.move(database, job_id, wanted, actor=BROWSER)
    return _to(f"/queue#q-{job_id}")


@router.post("/queue/pause")
def pause(
    database: DatabasePart, back: Back = "/", why: Annotated[str, Form(max_length=200)] = ""
) -> RedirectResponse:
    """Claim nothing more, then the page it was asked from."""
    if unwritable := text_problems({"why": why}):
        raise ConfigError(unwritable)
    pausing.pause(database, actor=BROWSER, why=why)
    return _to(back)


@router.post("/queue/resume")
def resume(database: DatabasePart, back: Back = "/") -> RedirectResponse:
    """Go on claiming, then the page it was asked from."""
    pausing.resume(database, actor=BROWSER)
    return _to(back)


@router.post("/queue/drain")
def drain(drains: DrainsPart) -> RedirectResponse:
    """A person's order to run the queue: a drain in a session of its own, then the queue."""
    drains.run_now()
    return _to("/queue")


@router.post("/queue/disarm")
def disarm(database: DatabasePart) -> RedirectResponse:
    """Switch autonomy off and undo what it left, then the queue."""
    autonomy.switch_off(database, actor=BROWSER, now=time.time())
    return _to("/queue")


@router.post("/queue/arm")
async def arm(
    request: Request, database: DatabasePart, settings: SettingsPart, drains: DrainsPart
) -> Response:
    """Arm the lane, confirmed by its typed name; or the form again, each problem at its field."""
    typed = await form_fields(request)

    def answered() -> Response:
        problems = _arm(database, typed)
        if not problems:
            return _to("/queue#stand-h")  # the heading says that it is armed
        return queue_page.answer(
            request, database, settings, drains, typed=typed, problems=problems
        )

    return await anyio.to_thread.run_sync(answered)


def _arm(database: Database, typed: Mapping[str, str]) -> list[ConfigProblem]:
    """What stands in the way; with nothing found the lane is armed."""
    lane = database.settings.lane
    problems: list[ConfigProblem] = list(text_problems(dict(typed)))
    if problems:
        return problems
    if typed.get("lane", "").strip() != lane:
        remedy = f"type {lane} to confirm that this lane may start jobs by itself"
        shown = typed.get("lane", "")[:40] or None
        problems.append(ConfigProblem("lane", shown, "is not the lane's name", remedy))
    if not typed.get("expires", "").strip():
        remedy = "write +12h, +7d, or 2030-12-01 07:00"
        problems.append(ConfigProblem("expires", None, "says no end", remedy))
    raw: dict[str, Any] = {
        name: text.strip()
        for name, text in typed.items()
        if text.strip() and name not in {"lane", "install_cron"}
    }
    try:
        # A name that was not confirmed still gets its other mistakes told at once.
        if problems:
            policy.parse(raw, time.time())
            return problems
        install = "install_cron" in typed
        autonomy.switch_on(database, raw, actor=BROWSER, now=time.time(), install=install)
    except ConfigError as error:
        return [*problems, *error.problems]
    except CrontabError as error:
        what, _, remedy = str(error).partition("; ")
        return [ConfigProblem("install_cron", None, what, remedy)]
    return []


def _job_page(job_id: int) -> RedirectResponse:
    return _to(f"/jobs/{job_id}")


def _to(address: str) -> RedirectResponse:
    return RedirectResponse(address, HTTPStatus.SEE_OTHER)
