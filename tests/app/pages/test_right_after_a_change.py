"""What is kept of a page never outlives a change: the next request shows it."""

from __future__ import annotations

import asyncio
import html
import re
import socket
import time
from collections.abc import Callable

import pytest
from sqlalchemy import insert, update
from starlette.testclient import TestClient

from app.cli.serve import _listen
from app.pages import board
from app.web.settings import AppSettings
from tests.app.night import night, queue
from worker.budget import ledger
from worker.db.connection import Database
from worker.db.tables import job, job_tag, metric
from worker.queue import pausing
from worker.schedule import policy
from worker.schedule.policy import Policy

Change = Callable[[Database, int], None]


def words(client: TestClient, address: str) -> str:
    """The page as it reads."""
    text = client.get(address).text
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", text).split()))


def finished(db: Database) -> int:
    """One run that ended well, with two gates."""
    number = queue(db, name="done")
    with night(db) as lane:
        attempt = lane.start()
        attempt.gate(0, 0.5)
        attempt.gate(10, 0.6)
        attempt.finish()
    return number


def _result(db: Database, number: int) -> None:
    with db.write_tx() as conn:
        result = {"heldout_before": 0.1, "heldout_after": 0.9, "lift": 0.8, "verdict": "loss"}
        conn.execute(update(job).where(job.c.id == number).values(result=result))


def _name(db: Database, number: int) -> None:
    with db.write_tx() as conn:
        conn.execute(update(job).where(job.c.id == number).values(name="<b>another</b>"))


def _tag(db: Database, number: int) -> None:
    with db.write_tx() as conn:
        conn.execute(insert(job_tag).values(job_id=number, tag="new-tag"))


def _gate(db: Database, number: int) -> None:
    with db.write_tx() as conn:
        row = {"job_id": number, "series": "heldout/select", "step": 20, "attempt": 1}
        conn.execute(insert(metric).values(**row, value=0.777, at=time.time()))


@pytest.mark.requirement("UI-01")
@pytest.mark.parametrize(
    ("change", "shown"),
    [(_result, "10.0 % → 90.0 %"), (_name, "<b>another</b>"), (_tag, "new-tag"), (_gate, "77.7 %")],
)
def test_the_boards_row_of_a_finished_run_changes_with_all_that_it_shows(
    client: TestClient, db: Database, change: Change, shown: str
) -> None:
    """Its result, its own columns, its tags and its gates."""
    number = finished(db)
    before = client.get("/").text

    change(db, number)
    after = client.get("/").text

    assert shown not in html.unescape(before)
    assert shown in html.unescape(after)
    assert "<b>another" not in after


def test_a_row_that_says_the_same_is_drawn_once_for_all_viewers(
    client: TestClient, db: Database
) -> None:
    """Fifty finished runs cost the next viewer no template."""
    finished(db)
    client.get("/")
    drawn = board._kept.cache_info()

    first, second = client.get("/?part=live").text, client.get("/?part=live").text

    assert board._kept.cache_info().misses == drawn.misses
    assert board._kept.cache_info().hits == drawn.hits + 2
    row = re.compile(r'<tr id="run-.*?</tr>', re.DOTALL)
    assert row.findall(first) == row.findall(second) != []


def test_what_is_kept_of_rows_is_bounded() -> None:
    """A browser that goes through a long history fills no memory."""
    assert board._kept.cache_info().maxsize == board.KEPT_ROWS


@pytest.mark.requirement("UI-01")
@pytest.mark.parametrize("address", ["/", "/queue", "/budget", "/strip", "/help"])
def test_the_strip_of_the_next_page_counts_a_job_that_was_queued_meanwhile(
    client: TestClient, db: Database, address: str
) -> None:
    """And says that the queue was paused, by whatever program."""
    assert "queue 0 waiting" in words(client, address)

    queue(db)
    assert "queue 1 waiting" in words(client, address)
    pausing.pause(db, actor="cli:ada")
    assert "queue 1 waiting paused" in words(client, address)


@pytest.mark.requirement("UI-04")
@pytest.mark.parametrize("address", ["/queue", "/budget"])
def test_tonight_is_looked_at_anew_when_money_was_spent_or_a_job_came(
    client: TestClient, db: Database, address: str
) -> None:
    """The look ahead is kept for seconds, but not over what it was made from."""
    policy.arm(db, Policy(zone="UTC", cap_usd=5), actor="test", now=time.time())
    queue(db, name="first")
    seen = words(client, address)

    ledger.spend_elsewhere(db, {"usd": 1.25}, actor="test", now=time.time())
    spent = words(client, address)
    queue(db, name="second")
    both = words(client, address)

    assert "$1.25" not in seen
    assert "$1.25" in spent
    if address == "/queue":
        assert "$1.25 is spent today" in spent
        assert "not looked at" not in both
        assert both.count("no estimate, counted as 1 h") == 2
    else:
        assert "1 of 1 queued jobs looked at" in spent
        assert "2 of 2 queued jobs looked at" in both


def test_no_answer_waits_for_the_acknowledgement_of_its_first_half() -> None:
    """Nagle's algorithm and a browser's delayed acknowledgement made of every answer 40 ms more."""

    async def accepted() -> int:
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sock = writer.get_extra_info("socket")
            asked.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = _listen(AppSettings(port=0))
        async with await asyncio.start_server(answer, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            found = await asyncio.wait_for(asked, 10)
            writer.close()
            await writer.wait_closed()
        return found

    assert asyncio.run(accepted()) == 1
