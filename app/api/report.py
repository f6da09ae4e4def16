"""The morning's report over REST."""

from __future__ import annotations

import datetime
import time

from fastapi import APIRouter

from app.web.dependencies import DatabaseDep
from worker.report.snapshot import report_of
from worker.report.standup import Report

router = APIRouter(prefix="/api/v1/report", tags=["report"])


@router.get("")
def get_report(database: DatabaseDep, date: datetime.date | None = None) -> Report:
    """The night before a morning, today's by default; one that is over is kept as it is."""
    return report_of(database, date, time.time())
