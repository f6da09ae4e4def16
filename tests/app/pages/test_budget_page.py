"""The budget page: money and hours against the caps, row by row, and what is written by hand."""

from __future__ import annotations

import datetime
import html
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import insert
from starlette.testclient import TestClient

from tests.app.conftest import Said
from tests.app.night import queue
from worker.budget import ledger
from worker.budget.ledger import Entry, Meter
from worker.budget.price import take_price
from worker.clock.window import CapDays, zone_named
from worker.db import decisions
from worker.db.connection import Database, open_database
from worker.db.tables import ledger as ledger_table
from worker.read.spending import entries, spending
from worker.schedule import policy
from worker.schedule.policy import Policy
from worker.settings import WorkerSettings

UTC = zone_named("UTC")
HTML = {"accept": "text/html"}


def words(text: str) -> str:
    """The page as it reads."""
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", text).split()))


def today() -> datetime.date:
    return datetime.datetime.now(UTC).date()


def used(db: Database, job: int, seconds: float, back_days: int = 0, price: float = 2.0) -> None:
    """A metered piece of an attempt, so many days ago."""
    meter = Meter("test", job, 1, price, CapDays(UTC), "drain:1")
    noon = datetime.datetime.combine(today(), datetime.time(12), UTC).timestamp()
    at = noon - back_days * 86400
    with db.write_tx() as conn:
        ledger.use(conn, meter, begin=at - seconds, seconds=seconds, at=at)


@pytest.fixture(autouse=True)
def utc(db: Database) -> None:
    """Days are counted in UTC, and a cap was set long ago."""
    policy.arm(db, Policy(zone="UTC", cap_usd=5), actor="test", now=time.time() - 3 * 86400)


def test_a_lane_that_spent_nothing_says_how_to_begin(client: TestClient) -> None:
    """With the exact next commands."""
    text = words(client.get("/budget").text)

    assert "Nothing has been spent yet" in text
    assert 'cockpit budget add 1.50 --note "judge API"' in text


def test_each_day_stands_with_its_money_its_hours_and_its_cap(
    client: TestClient, db: Database
) -> None:
    """Spent is what was used, never what is reserved; the cap is that day's policy's."""
    job = queue(db, name="<i>dear</i>")
    used(db, job, 3600)
    used(db, job, 3600 * 3, back_days=1)
    used(db, job, 1800, back_days=10)
    ledger.spend_elsewhere(db, {"usd": 1.5, "note": "judge"}, actor="test", now=time.time())
    with db.write_tx() as conn:
        ledger.reserve(
            conn, Meter("test", job, 1, 2.0, CapDays(UTC), "drain:1"), 9000, at=time.time()
        )

    found = spending(db, time.time())
    text = client.get("/budget").text

    by_day = {day.day: day for day in found.days}
    one = datetime.timedelta(days=1)
    assert len(found.days) == 30
    assert (by_day[today()].usd, by_day[today()].external_usd) == (3.5, 1.5)
    assert by_day[today() - one] == (today() - one, 6.0, 0.0, 3.0, 5.0, None)
    assert by_day[today() - 10 * one][1:] == (1.0, 0.0, 0.5, None, None)
    assert [(entry.job_id, entry.usd, entry.hours) for entry in found.jobs] == [(job, 9.0, 4.5)]
    assert "$10.50 and 4.50 lane hours in the last 30 days; 1 day went over the cap." in words(text)
    assert "&lt;i&gt;dear" in text
    assert text.count('class="over"') == 1


def test_the_ledger_comes_page_by_page_and_loses_no_row(client: TestClient, db: Database) -> None:
    """By keyset: what is written meanwhile shifts nothing."""
    job = queue(db)
    rows: list[dict[str, Any]] = [
        {
            "at": float(n), "day": today().isoformat(), "lane": "test", "job_id": job,
            "attempt": 1, "entry": "meter", "seconds": 1.0, "usd": 0.01, "price_usd_h": 1.0,
            "actor": "drain:1", "note": f"row {n}",
        }
        for n in range(120)
    ]  # fmt: skip
    with db.write_tx() as conn:
        conn.execute(insert(ledger_table), rows)

    seen: list[str] = []
    address: str | None = "/budget"
    while address:
        page = client.get(address).text
        seen += re.findall(r'<td data-label="note"><bdi>(row \d+)</bdi></td>', page)
        older = re.search(r'href="(/budget\?[^"]*before=\d+)#rows-h"', page)
        address = html.unescape(older[1]) if older else None
        ledger.spend_elsewhere(db, {"usd": 0.1}, actor="test", now=time.time())

    assert seen == [f"row {n}" for n in reversed(range(120))]


def test_the_rows_are_chosen_by_day_and_by_kind_in_the_address(
    client: TestClient, db: Database
) -> None:
    """A link shows the same rows."""
    job = queue(db)
    used(db, job, 60)
    used(db, job, 60, back_days=1)
    ledger.spend_elsewhere(db, {"usd": 1, "note": "judge"}, actor="test", now=time.time())

    assert [row.entry for row in entries(db, entry=Entry.EXTERNAL)] == ["external"]
    assert len(entries(db, day=today())) == 2
    text = client.get(f"/budget?day={today()}&entry=external").text
    assert "judge" in text
    assert f'href="/budget?day={today()}&amp;' in text or f"/budget?day={today()}&" in text
    assert client.get("/budget?entry=nope", headers=HTML).status_code == 422
    assert "No such row" in client.get("/budget?day=2020-01-01").text


def test_money_spent_elsewhere_is_written_by_the_form(client: TestClient, db: Database) -> None:
    """It counts for its day, and says who wrote it."""
    data = {"usd": "2.5", "note": "<b>judge</b>", "day": ""}

    answer = client.post("/budget/external", data=data, follow_redirects=False)

    assert answer.headers["location"] == f"/budget?day={today()}#rows-h"
    [row] = entries(db)
    assert (row.usd, row.actor, row.entry, row.day) == (2.5, "browser", "external", str(today()))
    assert "&lt;b&gt;judge" in client.get("/budget").text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("usd", ""),
        ("usd", "-1"),
        ("usd", "nan"),
        ("usd", "lots"),
        ("day", "soon"),
        ("day", "0001-01-01"),
    ],
)
def test_a_wrong_spend_is_refused_beside_its_field(
    client: TestClient, db: Database, field: str, value: str
) -> None:
    """Nothing is written, and what was typed stays."""
    data = {"usd": "1", "note": "kept", "day": ""} | {field: value}

    answer = client.post("/budget/external", data=data, headers=HTML)

    assert answer.status_code == 422
    assert f'<a href="#add-{field}">' in answer.text
    assert 'value="kept"' in answer.text
    assert entries(db) == []


def test_tonights_cost_is_foreseen(client: TestClient, db: Database) -> None:
    """Two jobs of an hour at two dollars."""
    queue(db)
    queue(db)
    client.app.state.database.settings = db.settings.model_copy(  # type: ignore[attr-defined]
        update={"price_usd_h": 2.0}
    )

    text = words(client.get("/budget").text)

    assert "tonight is expected to cost $4.00 2 of 2 queued jobs looked at" in text


def test_the_price_of_the_lane_is_set_by_page_and_command_line(
    client: TestClient, db: Database, cockpit: Callable[..., Said], settings: WorkerSettings
) -> None:
    """It stands in the database, is audited, and is what a drain charges by."""
    answer = client.post("/budget/price", data={"usd_h": "2.5"}, follow_redirects=False)
    assert answer.headers["location"] == "/budget#price"
    assert decisions.newest(db, "test", 1)[0].detail.startswith("an hour of the lane costs $2.5")

    said = cockpit("budget", "price", "3", "--json")
    assert said.code == 0
    assert "price of an hour $3" in words(client.get("/budget").text)
    with open_database(settings) as fresh:
        assert fresh.settings.price_usd_h == 0
        take_price(fresh)
        assert fresh.settings.price_usd_h == 3


@pytest.mark.parametrize("value", ["-1", "nan", "much", "10001", ""])
def test_a_price_that_is_none_is_refused(client: TestClient, db: Database, value: str) -> None:
    """Nothing is written."""
    answer = client.post("/budget/price", data={"usd_h": value}, headers=HTML)

    assert answer.status_code == 422
    assert '<a href="#add-usd_h">' in answer.text
    take_price(db)
    assert db.settings.price_usd_h == 0
