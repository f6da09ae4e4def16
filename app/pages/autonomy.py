"""Arming and disarming from the queue's page, as plain POST forms: one night, or every night.

Each leads back to that page; what is refused stands beside its field.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from app.forms.requests import BROWSER, form_fields, with_numbers
from app.pages import queue
from app.web.arming import Form, typed_terms
from app.web.dependencies import DatabaseDep, DrainsDep, SettingsDep
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.problems import text_problems
from worker.db.connection import Database
from worker.schedule import autonomy, policy
from worker.schedule.cron import CrontabError
from worker.schedule.one_night import one_night

router = APIRouter(include_in_schema=False)
ARMED = "/queue#stand-h"
"""Where the page says that it is armed."""


@router.post("/queue/disarm")
def disarm(database: DatabaseDep) -> RedirectResponse:
    """Switch autonomy off and undo what it left, then the queue."""
    autonomy.switch_off(database, actor=BROWSER, now=time.time())
    return _to("/queue")


@router.post("/queue/arm/tonight")
async def arm_tonight(
    request: Request, database: DatabaseDep, settings: SettingsDep, drains: DrainsDep
) -> Response:
    """Arm the lane for one night; or the card again, each problem at its field."""
    typed = await form_fields(request)
    problems = await anyio.to_thread.run_sync(_arm_tonight, database, typed)
    again = partial(queue.answer, one_night=Form(typed, problems))
    return await _armed(problems, partial(again, request, database, settings, drains))


@router.post("/queue/arm")
async def arm(
    request: Request, database: DatabaseDep, settings: SettingsDep, drains: DrainsDep
) -> Response:
    """Arm the lane for every night up to an end; or the form again, each problem at its field."""
    typed = await form_fields(request)
    problems = await anyio.to_thread.run_sync(_arm, database, typed)
    again = partial(queue.answer, every_night=Form(typed, problems))
    return await _armed(problems, partial(again, request, database, settings, drains))


async def _armed(problems: Sequence[ConfigProblem], again: Callable[[], Response]) -> Response:
    """The queue with its armed lane, or the page that says what stands in the way."""
    return await anyio.to_thread.run_sync(again) if problems else _to(ARMED)


def _arm_tonight(database: Database, typed: Mapping[str, str]) -> list[ConfigProblem]:
    """What stands in the way; with nothing found the lane is armed."""
    if problems := list(text_problems(dict(typed))):
        return problems
    now = time.time()
    try:
        terms = one_night(typed_terms(typed, autonomy.status(database, now)), now)
        given = terms.model_dump(exclude_none=True)
        autonomy.switch_on(database, given, actor=BROWSER, now=now)
    except ConfigError as error:
        return list(error.problems)
    except CrontabError as error:
        what, _, remedy = str(error).partition("; ")
        return [ConfigProblem("opens", None, what, remedy)]
    return []


def _arm(database: Database, typed: Mapping[str, str]) -> list[ConfigProblem]:
    """What stands in the way; with nothing found the lane is armed."""
    if problems := list(text_problems(dict(typed))):
        return problems
    if not typed.get("expires", "").strip():
        remedy = "write +12h, +7d, or 2030-12-01 07:00"
        problems.append(ConfigProblem("expires", None, "says no end", remedy))
    raw = with_numbers(typed, policy.NUMBERS)
    raw.pop("install_cron", None)
    try:
        # Without an end the other mistakes are still told at once.
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
