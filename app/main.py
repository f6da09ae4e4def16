"""The web application: the guard, the routes and the live stream around one database.

It reads, enqueues, and may start a drain as a process of its own; nothing in here runs a job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.staticfiles import StaticFiles

from app import problems
from app.api import (
    autonomy,
    budget,
    health,
    jobs,
    kinds,
    lane,
    queue,
    report,
    stream,
    sweeps,
)
from app.guard import Guard
from app.live import Live
from app.pages import actions, board, machine, new_job, run
from app.settings import AppSettings
from app.templating import STATIC_FOLDER
from app.ticker import Drains, Ticker
from worker.database import open_database
from worker.settings import WorkerSettings


def create_app(settings: AppSettings, worker_settings: WorkerSettings) -> FastAPI:
    """Build the application; the database is opened when it starts.

    Raises DatabaseError on start.
    """
    app = FastAPI(
        title="Nightlane",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # its page loads scripts from another host
        redoc_url=None,
        lifespan=_lifespan,
        middleware=[Middleware(Guard, allowed_hosts=settings.allowed_hosts)],
    )
    app.state.worker_settings = worker_settings
    problems.install(app)
    for module in (
        board,
        actions,
        new_job,
        run,
        machine,
        jobs,
        sweeps,
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
        app.state.database = database
        app.state.live = Live(database)
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
