"""A database of its own, the application around it, and the command line as a function."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import typer
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.cli.app import cli, main
from app.cli.serve import commands_of
from app.main import create_app
from app.web.settings import AppSettings
from app.web.ticker import Drains
from tests.door import bearer
from worker.db.connection import Database, open_database
from worker.settings import WorkerSettings

ORIGIN = "http://127.0.0.1:8765"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerSettings:
    """A fresh data directory, known to this process and to its children."""
    monkeypatch.setenv("NIGHTLANE_DATA_DIR", str(tmp_path / "data"))
    return WorkerSettings()


@pytest.fixture
def db(settings: WorkerSettings) -> Iterator[Database]:
    """A migrated SQLite file."""
    with open_database(settings) as database:
        yield database


@pytest.fixture
def application(db: Database, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    """The whole application over that file. Its timer looks and starts nothing: a test that arms
    the lane would leave a real drain behind it.
    """
    monkeypatch.setattr(Drains, "tick", lambda _: None)
    return create_app(AppSettings(), settings, commands_of(typer.main.get_command(cli)))


@pytest.fixture
def client(application: FastAPI, db: Database) -> Iterator[TestClient]:
    """A program with a token. Its lifespan included; a defect of ours comes as the 500 it is."""
    with TestClient(application, base_url=ORIGIN, raise_server_exceptions=False) as made:
        made.headers |= bearer(db)
        yield made


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def cockpit(
    settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """`cockpit ARGUMENTS` through the console script's own function."""

    def run(*arguments: str, stdin: bytes = b"") -> Said:
        monkeypatch.setattr("sys.argv", ["cockpit", *arguments])
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Said(int(ended.value.code or 0), said.out, said.err)

    return run
