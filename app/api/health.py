"""Is the process up, and can it answer? For supervisors, without a word about the work."""

from __future__ import annotations

from fastapi import APIRouter, Request

from app.web.dependencies import DatabaseDep, LiveDep
from worker.read.feed import last_change_id

router = APIRouter()


@router.get("/healthz")
async def healthz(request: Request, live: LiveDep) -> dict[str, str | int]:
    """The process answers; whoever is signed in hears how many browsers listen to its stream."""
    if request.state.access is None:
        return {"status": "ok"}
    return {"status": "ok", "viewers": live.viewers}


@router.get("/readyz")
def readyz(database: DatabaseDep) -> dict[str, str]:
    """The database answers too."""
    last_change_id(database)
    return {"status": "ok"}
