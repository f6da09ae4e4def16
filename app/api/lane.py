"""The lane over REST: who holds it, and what was decided about it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from app.web.dependencies import DatabaseDep, SettingsDep
from worker.db import decisions
from worker.db.decisions import DecisionView
from worker.read.lane import LaneView, lane_status

router = APIRouter(prefix="/api/v1/lane", tags=["lane"])


@router.get("")
def get_lane(database: DatabaseDep, settings: SettingsDep) -> LaneView:
    """The drain that holds the lane, and the job that it runs."""
    return lane_status(database, settings.lane)


@router.get("/decisions")
def get_decisions(
    database: DatabaseDep,
    settings: SettingsDep,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> list[DecisionView]:
    """What was decided about the lane, by which rule, from which numbers; newest first."""
    return decisions.newest(database, settings.lane, limit)
