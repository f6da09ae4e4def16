"""`/api/v1/stream`: the one server-sent event stream."""

from __future__ import annotations

from typing import Annotated

import anyio
from fastapi import APIRouter, Header, Query
from sse_starlette import EventSourceResponse

from app.web.dependencies import LiveDep
from app.web.live import Live

router = APIRouter(prefix="/api/v1", tags=["stream"])

_SILENCE_S = 15
"""A comment line goes out after this long, so that no proxy takes the stream for dead."""
_FAREWELL_S = 1.0
"""What a stream may take to end by itself when the server goes down."""


@router.get("/stream", response_class=EventSourceResponse)
async def stream(
    live: LiveDep,
    after: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None,
    job: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> EventSourceResponse:
    """Events `job`, `board`, `lane`, `resync` and `beat`; `?job=` keeps one job's only.

    It goes on behind Last-Event-ID, else behind `?after=`, else from now on.
    """
    live.require_room()
    return _answer(live, _position(last_event_id, after), job)


def _position(last_event_id: str | None, after: int | None) -> int | None:
    if last_event_id is None:
        return after
    # What is no number of ours is an event we cannot find: the page starts again.
    return int(last_event_id) if last_event_id.isdecimal() and len(last_event_id) < 19 else -1


def _answer(live: Live, after: int | None, job: int | None) -> EventSourceResponse:
    going_down = anyio.Event()
    return EventSourceResponse(
        live.follow(after, job, going_down),
        ping=_SILENCE_S,
        send_timeout=30,
        shutdown_event=going_down,
        shutdown_grace_period=_FAREWELL_S,
    )
