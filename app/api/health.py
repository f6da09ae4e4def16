"""Is the process up, and can it answer? For supervisors, without a word about the work."""

from __future__ import annotations

from fastapi import APIRouter

from app.parts import DatabasePart
from worker.jobs.views import last_change_id

router = APIRouter()


@router.get("/healthz")
def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz")
def readyz(database: DatabasePart) -> dict[str, str]:
    """The database answers too."""
    last_change_id(database)
    return {"status": "ok"}
