"""Arming and disarming from the queue's page, as plain POST forms.

Each leads back to that page; what is refused stands beside its field.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from http import HTTPStatus

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from app.forms.requests import BROWSER, form_fields, with_numbers
from app.pages import queue
from app.web.dependencies import DatabaseDep, DrainsDep, SettingsDep
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.problems import text_problems
from worker.db.connection import Database
from worker.schedule import autonomy, policy
from worker.schedule.cron import CrontabError

router = APIRouter(include_in_schema=False)


@router.post("/queue/disarm")
def disarm(database: DatabaseDep) -> RedirectResponse:
    """Switch autonomy off and undo what it left, then the queue."""
    autonomy.switch_off(database, actor=BROWSER, now=time.time())
    return _to("/queue")


@router.post("/queue/arm")
async def arm(
    request: Request, database: DatabaseDep, settings: SettingsDep, drains: DrainsDep
) -> Response:
    """Arm the lane, confirmed by its typed name; or the form again, each problem at its field."""
    typed = await form_fields(request)

    def answered() -> Response:
        problems = _arm(database, typed)
        if not problems:
            return _to("/queue#stand-h")  # the heading says that it is armed
        return queue.answer(request, database, settings, drains, typed=typed, problems=problems)

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
    raw = with_numbers(typed, policy.NUMBERS)
    for name in ("lane", "install_cron"):
        raw.pop(name, None)
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


def _to(address: str) -> RedirectResponse:
    return RedirectResponse(address, HTTPStatus.SEE_OTHER)
