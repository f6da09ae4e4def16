"""What routes ask for: database, hub, drawings, drains, settings, a job's number.

Coroutines, because a plain function would be sent to a thread for one attribute.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Request

from app.drawings import Drawings
from app.live import Live
from app.ticker import Drains
from worker.database import Database
from worker.settings import WorkerSettings


async def _database(request: Request) -> Database:
    database: Database = request.app.state.database
    return database


async def _live(request: Request) -> Live:
    live: Live = request.app.state.live
    return live


async def _drawings(request: Request) -> Drawings:
    drawings: Drawings = request.app.state.drawings
    return drawings


async def _settings(request: Request) -> WorkerSettings:
    settings: WorkerSettings = request.app.state.worker_settings
    return settings


async def _drains(request: Request) -> Drains:
    drains: Drains = request.app.state.drains
    return drains


DatabasePart = Annotated[Database, Depends(_database)]
LivePart = Annotated[Live, Depends(_live)]
DrawingsPart = Annotated[Drawings, Depends(_drawings)]
DrainsPart = Annotated[Drains, Depends(_drains)]
SettingsPart = Annotated[WorkerSettings, Depends(_settings)]
JobId = Annotated[int, Path(ge=1, le=2**63 - 1)]
"""A number the database can hold; any other path names nothing."""
NO_NUL = r"^[^\x00]*$"
"""Of a text in an address: what no database can compare with is a wrong query."""
