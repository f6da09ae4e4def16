"""What routes ask for: database, hub, drains, settings, lane time, a job's number.

Coroutines, because a plain function would be sent to a thread for one attribute.
"""

from __future__ import annotations

from typing import Annotated, Self

from fastapi import Depends, Path, Request
from pydantic import BaseModel, BeforeValidator, Field, model_validator

from app.text import wording
from app.text.zones import Zones
from app.web.live import Live
from app.web.run_tables import RunTables
from app.web.ticker import Drains
from worker.attempt import orphans
from worker.db.connection import Database
from worker.settings import WorkerSettings


async def _database(request: Request) -> Database:
    database: Database = request.app.state.database
    return database


async def _live(request: Request) -> Live:
    live: Live = request.app.state.live
    return live


async def _run_tables(request: Request) -> RunTables:
    tables: RunTables = request.app.state.run_tables
    return tables


async def _settings(request: Request) -> WorkerSettings:
    settings: WorkerSettings = request.app.state.worker_settings
    return settings


async def _drains(request: Request) -> Drains:
    drains: Drains = request.app.state.drains
    return drains


def settle_orphans(database: Annotated[Database, Depends(_database)]) -> None:
    """For a route that acts on a job: what a dead drain left is settled first."""
    orphans.settle_orphans(database)


async def in_lane_time(request: Request) -> None:
    """For a route: what it says of moments is told in the lane's zone."""
    zones: Zones = request.app.state.zones
    wording.tell_times_in(zones.now)  # read in the thread that tells them, not in one more


SETTLED = [Depends(settle_orphans)]
"""Of a route that acts on jobs: none of them says running after its drain has died."""
DatabaseDep = Annotated[Database, Depends(_database)]
RunTablesDep = Annotated[RunTables, Depends(_run_tables)]
LiveDep = Annotated[Live, Depends(_live)]
DrainsDep = Annotated[Drains, Depends(_drains)]
SettingsDep = Annotated[WorkerSettings, Depends(_settings)]
JobId = Annotated[int, Path(ge=1, le=2**63 - 1)]
"""A number the database can hold; any other path names nothing."""
NO_NUL = r"^[^\x00]*$"
"""Of a text in an address: what no database can compare with is a wrong query."""

Step = Annotated[
    Annotated[int, Field(ge=0, le=2**31 - 1)] | None,
    BeforeValidator(lambda typed: None if typed == "" else typed),
]
"""One end of a part; a field that was left empty is an open end."""


class StepRange(BaseModel):
    """The part of a run from one step to another, both with it, in whichever order."""

    first: Step = Field(None, alias="from")
    last: Step = Field(None, alias="to")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.first is not None and self.last is not None and self.first > self.last:
            self.first, self.last = self.last, self.first
        return self
