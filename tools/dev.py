"""`make dev`: the cockpit over a filled data directory, for whoever works on its pages.

Python that changes restarts the server; a template, a style or a script shows at the next reload
of the page. The data are those of `tests.filled`: a week of runs in every state, one still going.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from app.cli.sign_in import entrance
from app.main import create_app
from app.web import assets
from app.web.settings import AppSettings
from tests.filled import filled
from worker import access
from worker.db.connection import open_database
from worker.settings import WorkerSettings

PLACE = Path(".nightlane/dev")
WATCHED = ["app", "worker", "engine/contract", "tools"]


def main() -> None:
    """Fill the directory anew, then serve it until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8766)
    wanted = parser.parse_args()
    shutil.rmtree(PLACE, ignore_errors=True)
    os.environ |= {
        "NIGHTLANE_DATA_DIR": str(PLACE.resolve() / "data"),
        "NIGHTLANE_LOCK_DIR": str(PLACE.resolve() / "locks"),
        "NIGHTLANE_LANE": "test",
        "NIGHTLANE_LEASE_S": "86400",
    }
    with open_database(WorkerSettings()) as db, filled(db):
        address = entrance(db, f"http://127.0.0.1:{wanted.port}", access.Scope.ADMIN)
        print(f"sign in, once: {address}", flush=True)
        uvicorn.run(
            "tools.dev:application",
            factory=True,
            host="127.0.0.1",
            port=wanted.port,
            reload=True,
            reload_dirs=WATCHED,
            log_level="info",
            access_log=False,  # its lines would hold that address
        )


def application() -> ASGIApp:
    """The application, with addresses of static files that follow their content."""
    return FreshAssets(create_app(AppSettings(), WorkerSettings()))


class FreshAssets:
    """ASGI middleware: forgets what static files held before each request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assets.asset.cache_clear()
        await self._app(scope, receive, send)


if __name__ == "__main__":
    main()
