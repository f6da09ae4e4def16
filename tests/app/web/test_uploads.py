"""A file of rows that a browser sends is kept whole, under a harmless name, or not at all."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from starlette.testclient import TestClient

from app.web.uploads import receive
from worker.db.connection import Database

pytestmark = pytest.mark.requirement("UI-15")
ROWS = b'{"prompt": "1+1", "answer": "2"}\n'


def folder(db: Database) -> Path:
    return db.settings.data_dir / "uploads"


def send(client: TestClient, name: str, content: bytes = ROWS) -> Path:
    answer = client.post("/new/rows", params={"name": name}, content=content)
    assert answer.status_code == 200, answer.text
    assert answer.json()["bytes"] == len(content)
    return Path(answer.json()["path"])


def test_a_file_is_kept_under_its_name_and_other_content_under_a_number(
    client: TestClient, db: Database
) -> None:
    """The same content twice is one file; nothing that is there is replaced."""
    first = send(client, "sums.jsonl")
    again = send(client, "sums.jsonl")
    other = send(client, "sums.jsonl", ROWS * 2)

    assert first == again == folder(db) / "sums.jsonl"
    assert other.name == "sums-2.jsonl"
    assert first.read_bytes() == ROWS
    assert {path.name for path in folder(db).iterdir()} == {"sums.jsonl", "sums-2.jsonl"}


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/cron.d/rows.jsonl", "rows.jsonl"),
        ("C:\\Users\\me\\my rows.csv", "my_rows.csv"),
        (".hidden.jsonl", "hidden.jsonl"),
        ("größe\x00.jsonl", "größe_.jsonl"),
        ("a" * 200 + ".jsonl", "a" * 95 + ".jsonl"),
        ("rows." + "x" * 200, "rows." + "x" * 20),
    ],
)
def test_a_name_leads_nowhere_else(client: TestClient, db: Database, name: str, kept: str) -> None:
    """Its last part, in letters that every shell takes as they are."""
    path = send(client, name)

    assert path == folder(db) / kept


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [("rows", ROWS, "no name of a file of rows"), ("rows.jsonl", b"", "is empty")],
)
def test_what_is_no_file_of_rows_is_refused_and_nothing_is_kept(
    client: TestClient, db: Database, name: str, content: bytes, said: str
) -> None:
    """By name, with what to do."""
    answer = client.post("/new/rows", params={"name": name}, content=content)

    assert answer.status_code == 422
    assert said in answer.text
    assert not folder(db).exists() or not [*folder(db).iterdir()]


def test_a_body_that_says_it_is_too_large_is_refused_unread(
    client: TestClient, db: Database
) -> None:
    """2 GB at most; other addresses keep their own bound."""
    answer = client.post(
        "/new/rows?name=a.jsonl", content=b"x", headers={"content-length": "2000000001"}
    )

    assert answer.status_code == 413
    assert "name data by path" in answer.text
    assert not folder(db).exists()


class Usage(NamedTuple):
    """As `shutil.disk_usage` answers."""

    total: int
    used: int
    free: int


def test_the_disk_is_not_filled(
    client: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 GB stays free for what runs."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 10**12, 10**9 + 5))

    answer = client.post("/new/rows?name=a.jsonl", content=ROWS)

    assert answer.status_code == 507
    assert "1 GB must stay" in answer.text
    assert [*folder(db).iterdir()] == []


def test_a_sender_that_goes_away_leaves_nothing(tmp_path: Path) -> None:
    """Half a file would be trained on as if it were whole."""

    async def broken() -> AsyncIterator[bytes]:
        yield ROWS
        raise ConnectionError

    with pytest.raises(ConnectionError):
        anyio.run(receive, tmp_path / "uploads", "a.jsonl", broken(), 0)

    assert [*(tmp_path / "uploads").iterdir()] == []
