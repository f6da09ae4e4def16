"""The ledger over REST: one local day, row by row, and money that was spent elsewhere."""

from __future__ import annotations

import datetime
import time

import anyio.to_thread
from fastapi import APIRouter, Request

from app.forms.requests import REST, json_object, takes
from app.web.dependencies import DatabaseDep
from worker.budget import ledger
from worker.budget.ledger import DayView, ExternalSpend
from worker.db.connection import Database

router = APIRouter(prefix="/api/v1/budget", tags=["budget"])


@router.get("")
def get_budget(database: DatabaseDep, day: datetime.date | None = None) -> DayView:
    """A local day of the lane, today by default: its sums and its rows."""
    return ledger.day_view(database, day, time.time())


@router.post("", status_code=201, openapi_extra=takes(ExternalSpend))
async def add_spend(request: Request, database: DatabaseDep) -> ExternalSpend:
    """Count money that was spent elsewhere against a day's cap."""
    body = await json_object(request, '{"usd": 1.5, "note": "…"}')
    return await anyio.to_thread.run_sync(_add, database, body)


def _add(database: Database, body: dict[str, object]) -> ExternalSpend:
    return ledger.spend_elsewhere(database, body, actor=REST, now=time.time())
