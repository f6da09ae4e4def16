"""The web application: the guard, the door, the routes and the live stream around one database.

It reads, enqueues, and may start a drain as a process of its own; nothing in here runs a job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from fastapi import Depends, FastAPI
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles

from app.api import (
    autonomy,
    budget,
    compare,
    health,
    jobs,
    kinds,
    lane,
    leaderboard,
    queue,
    report,
    rescored,
    samples,
    stream,
    sweeps,
)
from app.api import runs as runs_api
from app.pages import (
    audit,
    board,
    compare_groups,
    machine,
    new_job,
    new_job_parts,
    palette,
    queue_edit,
    run,
    run_actions,
    run_charts,
    runs,
    strip,
)
from app.pages import autonomy as autonomy_page
from app.pages import budget as budget_page
from app.pages import compare as compare_page
from app.pages import help as help_page
from app.pages import jobs as jobs_page
from app.pages import leaderboard as leaderboard_page
from app.pages import queue as queue_page
from app.pages import report as report_page
from app.pages import rescored as rescored_page
from app.pages import samples as samples_page
from app.text.zones import Zones
from app.web import problems
from app.web.assets import STATIC_FOLDER
from app.web.dependencies import in_lane_time
from app.web.door import Door, within_scope
from app.web.guard import Guard
from app.web.head import HeadAsGet
from app.web.live import Live
from app.web.openapi import Documented
from app.web.plainly import plainly_written
from app.web.run_tables import RunTables
from app.web.settings import AppSettings
from app.web.strip import Strips
from app.web.ticker import Drains, Ticker
from worker.budget.price import take_price
from worker.db.connection import open_database
from worker.settings import WorkerSettings

GZIP_LEVEL = 4
"""Two percent larger than the highest level, in a third of its time."""


def create_app(
    settings: AppSettings,
    worker_settings: WorkerSettings,
    commands: Sequence[tuple[str, str]] = (),
) -> FastAPI:
    """Build the application; the database is opened when it starts.

    `commands` are those of the command line, with a sentence each, for the help page.
    Raises DatabaseError on start.
    """
    app = Documented(
        title="Nightlane",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # its page loads scripts from another host
        redoc_url=None,
        lifespan=_lifespan,
        dependencies=[Depends(within_scope), Depends(plainly_written)],
        middleware=[
            Middleware(Guard, allowed_hosts=settings.allowed_hosts),
            Middleware(Door, locked=settings.locked),
            Middleware(HeadAsGet),
            Middleware(GZipMiddleware, compresslevel=GZIP_LEVEL),  # lets event streams through
        ],
    )
    app.state.worker_settings = worker_settings
    app.state.unlocked = settings.unlocked
    app.state.commands = commands
    problems.install(app)
    for module in (
        board,
        jobs_page,
        queue_page,
        queue_edit,
        autonomy_page,
        budget_page,
        report_page,
        new_job,
        new_job_parts,
        run,
        run_charts,
        runs,
        run_actions,
        samples_page,
        rescored_page,
        compare_page,
        leaderboard_page,
        compare_groups,
        machine,
        palette,
        strip,
        audit,
        help_page,
    ):
        app.include_router(module.router, dependencies=[Depends(in_lane_time)])
    for module in (
        jobs,
        samples,
        rescored,
        compare,
        leaderboard,
        sweeps,
        runs_api,
        queue,
        autonomy,
        lane,
        budget,
        report,
        kinds,
        stream,
        health,
    ):
        app.include_router(module.router)
    app.mount("/static", StaticFiles(directory=STATIC_FOLDER))
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    with open_database(app.state.worker_settings) as database:
        take_price(database)
        app.state.database = database
        app.state.live = Live(database)
        app.state.strips = Strips(database)
        app.state.run_tables = RunTables(database)
        app.state.zones = Zones(database)
        app.state.drains = Drains(database, app.state.worker_settings)
        ticker = Ticker(app.state.drains, database)
        ticker.start()
        poller = asyncio.create_task(app.state.live.run())
        try:
            yield
        finally:
            ticker.shutdown()
            poller.cancel()
            with suppress(asyncio.CancelledError):
                await poller
