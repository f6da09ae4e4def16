"""Is the process up, and can it answer? For supervisors, without a word about the work."""

from __future__ import annotations

from fastapi import APIRouter

from app.web.dependencies import DatabaseDep, LiveDep
from worker.read.feed import last_change_id

router = APIRouter()


@router.get("/healthz")
async def healthz(live: LiveDep) -> dict[str, str | int]:
    """The process answers, and says how many browsers listen to its stream."""
    return {"status": "ok", "viewers": live.viewers}


@router.get("/readyz")
def readyz(database: DatabaseDep) -> dict[str, str]:
    """The database answers too."""
    last_change_id(database)
    return {"status": "ok"}
