"""Every test of this directory runs on SQLite and on PostgreSQL: one rule, two databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres import PostgresServer, postgres_server
from worker.settings import WorkerSettings


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for the whole run."""
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(
    request: pytest.FixtureRequest, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> WorkerSettings:
    """A fresh database of each kind, known to this process and to its children."""
    if request.param == "sqlite":
        return settings
    server: PostgresServer = request.getfixturevalue("postgres")
    monkeypatch.setenv("NIGHTLANE_DATABASE_URL", server.new_database())
    return WorkerSettings()
