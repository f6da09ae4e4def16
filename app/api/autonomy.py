"""Autonomy over REST: what the lane may do by itself, tonight's preview, arm and disarm."""

from __future__ import annotations

import time
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Request

from app.forms.requests import REST, json_object, takes
from app.web.dependencies import DatabaseDep
from engine.contract.errors import ConfigError, ConfigProblem
from worker.db.connection import Database
from worker.read.tonight import Preview, preview
from worker.schedule import autonomy
from worker.schedule.admission import memory_of
from worker.schedule.policy import Policy

router = APIRouter(prefix="/api/v1/autonomy", tags=["autonomy"])


class Terms(Policy):
    """The body of a PUT: the terms, whose end may be said as a person would."""

    expires: str | None = None
    """Instead of `expires_at`: a time, or one from now on, e.g. +7d."""


@router.get("")
def get_autonomy(database: DatabaseDep) -> autonomy.Status:
    """The policy, whether jobs may start now and if not why, and what today has cost."""
    return autonomy.status(database, time.time())


@router.get("/preview")
def get_preview(database: DatabaseDep) -> Preview:
    """Tonight before it happens: order, start, finish, cost, memory, and who must wait."""
    return preview(database, time.time(), lambda: memory_of(database))


@router.put("", openapi_extra=takes(Terms))
async def arm(request: Request, database: DatabaseDep) -> autonomy.Status:
    """Arm the lane; the body holds the terms. The crontab belongs to the command line."""
    terms = await json_object(request, '{"interval_min": 30, "cap_usd": 5}')
    return await anyio.to_thread.run_sync(_arm, database, terms)


@router.delete("")
def disarm(database: DatabaseDep) -> autonomy.Status:
    """Switch it off: no cron line, no dead attempts, the resident model up again."""
    now = time.time()
    autonomy.switch_off(database, actor=REST, now=now)
    return autonomy.status(database, now)


def _arm(database: Database, terms: dict[str, Any]) -> autonomy.Status:
    expires = terms.get("expires")
    if expires is not None and not isinstance(expires, str):
        problem = "must be a text"
        raise ConfigError([ConfigProblem("expires", None, problem, "write '+7d' or a date")])
    now = time.time()
    autonomy.switch_on(database, terms, actor=REST, now=now)
    return autonomy.status(database, now)
