"""The queue over REST: what is next and why it waits, pause and resume."""

from __future__ import annotations

from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict

from app.forms.requests import REST, optional_body, takes
from app.web.dependencies import DatabaseDep
from worker.db.connection import Database
from worker.queue import pausing
from worker.queue.pausing import MAX_WHY, PauseRequest
from worker.queue.states import State
from worker.read import jobs

router = APIRouter(prefix="/api/v1/queue", tags=["queue"])


class PauseView(BaseModel):
    """Who paused the queue, when and why."""

    at: float
    actor: str
    why: str


class QueueView(BaseModel):
    """The queue as it stands."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    paused: PauseView | None
    """None while jobs may be claimed."""
    counts: dict[State, int]
    """Jobs in each state."""
    next: list[jobs.JobView]
    """In the order in which they will be claimed; deferred ones last."""


@router.get("")
def get_queue(database: DatabaseDep, limit: Annotated[int, Query(ge=1, le=200)] = 50) -> QueueView:
    """What is next, why each job waits, and whether the queue is paused."""
    return _view(database, limit)


@router.post("/pause", openapi_extra=takes(PauseRequest, required=False))
async def pause_queue(
    request: Request,
    database: DatabaseDep,
    why: Annotated[str | None, Query(max_length=MAX_WHY)] = None,
) -> QueueView:
    """Claim nothing more; what runs goes on. A queue that is paused keeps its first reason.

    The reason comes as `?why=` or as `{"why": …}`.
    """
    wanted = pausing.pause_request(await optional_body(request, {"why": why}, '{"why": "lunch"}'))
    return await anyio.to_thread.run_sync(_pause, database, wanted.why)


@router.post("/resume")
def resume_queue(database: DatabaseDep) -> QueueView:
    """Go on claiming; nothing happens to a queue that is not paused."""
    pausing.resume(database, actor=REST)
    return _view(database, 50)


def _pause(database: Database, why: str) -> QueueView:
    pausing.pause(database, actor=REST, why=why)
    return _view(database, 50)


def _view(database: Database, limit: int) -> QueueView:
    found = jobs.paused(database)
    return QueueView(
        paused=PauseView(**found._asdict()) if found else None,
        counts=jobs.counts(database),
        next=jobs.next_jobs(database, limit=limit),
    )
