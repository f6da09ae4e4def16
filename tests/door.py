"""Through the door, as a user goes: for tests of other subjects."""

from __future__ import annotations

import time

from worker import access
from worker.access import Scope
from worker.db.connection import Database, open_database
from worker.settings import WorkerSettings


def bearer(db: Database, scope: Scope = Scope.ADMIN) -> dict[str, str]:
    """The header that a program sends."""
    made = access.new_token(db, scope, actor="test", now=time.time())
    return {"authorization": f"Bearer {made.secret}"}


def bearer_here() -> dict[str, str]:
    """The same for a cockpit on this process's data directory."""
    with open_database(WorkerSettings()) as db:
        return bearer(db)


def address(db: Database, base: str, scope: Scope = Scope.ADMIN) -> str:
    """What a person opens once in a browser."""
    made = access.new_address(db, scope, actor="test", now=time.time())
    return f"{base.rstrip('/')}/enter/{made.secret}"
