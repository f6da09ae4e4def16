"""The ledger: append-only, per local day, and equal to what the attempts were charged."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, update

from engine.contract.errors import ConfigError
from tests.worker.lane_rows import BERLIN, NOON, berlin, charge, ended
from worker.budget import ledger
from worker.budget.ledger import Entry, Meter, _by_day
from worker.clock.window import CapDays
from worker.db.connection import Database
from worker.db.tables import attempt, job
from worker.drain import drain
from worker.schedule.policy import Standing
from worker.settings import WorkerSettings

Tally = Callable[..., int]
Armed = Callable[..., Standing]
MONDAY, TUESDAY = datetime.date(2026, 6, 1), datetime.date(2026, 6, 2)


def spent(db: Database, day: datetime.date) -> tuple[float, float]:
    with db.read() as conn:
        found = ledger.spent(conn, db.settings.lane, day)
    return round(found.usd, 6), round(found.seconds, 6)


@pytest.mark.requirement("LN-05")
def test_a_run_over_midnight_is_charged_to_both_days(db: Database, tally: Tally) -> None:
    """An hour at 1 $/h from 23:15: three quarters to Monday, one to Tuesday."""
    charge(db, tally(), seconds=3600, at=berlin("2026-06-02T00:15"))

    assert spent(db, MONDAY) == (0.75, 2700)
    assert spent(db, TUESDAY) == (0.25, 900)


@pytest.mark.requirement("LN-05")
def test_what_was_spent_on_other_days_does_not_count(db: Database, tally: Tally) -> None:
    """A daily cap that sums over all time would close the lane for good."""
    number = tally()
    for day in range(1, 20):
        charge(db, number, seconds=3600, at=berlin(f"2026-05-{day:02d}T12:00"))

    assert spent(db, MONDAY) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)]
)
def test_a_day_in_which_the_clock_changes_holds_as_many_hours_as_it_had(
    db: Database, tally: Tally, day: str, hours: int
) -> None:
    """A lane that ran around the clock for three days: the middle one got exactly its own."""
    middle = datetime.date.fromisoformat(day)
    begin = berlin(f"{middle - datetime.timedelta(days=1)}T00:00")
    end = berlin(f"{middle + datetime.timedelta(days=2)}T00:00")

    charge(db, tally(), seconds=end - begin, at=end)

    assert spent(db, middle) == (hours, hours * 3600)


@given(begin=st.floats(1.6e9, 1.9e9), seconds=st.floats(0.001, 2e6))
def test_cutting_at_midnight_loses_and_doubles_nothing(begin: float, seconds: float) -> None:
    """The parts add up, one day each, in order."""
    parts = list(_by_day(begin, seconds, CapDays(BERLIN)))

    assert sum(part for _, part in parts) == pytest.approx(seconds)
    days = [day for day, _ in parts]
    assert days == sorted(set(days))


@pytest.mark.requirement("LN-05")
def test_a_settlement_charges_the_rest_of_an_attempt(db: Database, tally: Tally) -> None:
    """Metered 60 of 100 seconds: 40 are missing; the rows of the attempt sum up to its seconds."""
    number = tally()
    charge(db, number, seconds=60, at=NOON)
    ended(db, number, at=NOON + 40, seconds=100.0)

    _settle(db, number)

    assert spent(db, MONDAY) == (round(100 / 3600, 6), 100)


@pytest.mark.requirement("LN-05")
def test_an_attempt_that_was_metered_too_far_is_paid_back(db: Database, tally: Tally) -> None:
    """Its supervisor died behind the last row; the last heartbeat counts, no row is changed."""
    number = tally()
    charge(db, number, seconds=60, at=NOON)
    ended(db, number, at=NOON - 10, seconds=50.0, outcome="queued")

    _settle(db, number)

    assert spent(db, MONDAY) == (round(50 / 3600, 6), 50)
    rows = ledger.day_view(db, MONDAY, NOON).rows
    assert [(row.entry, row.seconds) for row in rows] == [(Entry.METER, 60), (Entry.SETTLE, -10)]


def test_a_reservation_holds_what_a_running_attempt_has_not_used(
    db: Database, settings: WorkerSettings, tally: Tally
) -> None:
    """And nothing once it has ended; it is never spent."""
    number = tally()
    meter = Meter("cpu", number, 1, 2.0, CapDays(BERLIN), "test")
    with db.write_tx() as conn:
        ledger.reserve(conn, meter, 3600, at=NOON)
    with db.read() as conn:
        assert ledger.held(conn, "cpu") == (0.0, 0.0)  # it does not run

    _running(db, number)
    charge(db, number, seconds=900, at=NOON + 900, price=2.0)

    with db.read() as conn:
        found = ledger.held(conn, "cpu")
        assert found.usd == pytest.approx(1.5)
        assert found.seconds == 2700
    assert spent(db, MONDAY) == (0.5, 900)


@pytest.mark.requirement("LN-05")
def test_every_attempt_of_a_drain_is_charged_what_its_row_says(
    db: Database, priced: Callable[..., WorkerSettings], tally: Tally
) -> None:
    """A success and a crash: the ledger and the attempts agree to the second."""
    settings = priced(price_usd_h=3.6, meter_s=0.05)
    tally(steps=1)
    tally(steps=2, at_end="crash")

    drain(settings)

    with db.read() as conn:
        attempts = conn.execute(select(attempt)).mappings().all()
    assert len(attempts) == 2
    charged: dict[int, float] = {}
    for row in ledger.day_view(db, None, attempts[-1]["ended_at"]).rows:
        assert row.entry in {Entry.RESERVE, Entry.METER, Entry.SETTLE}
        assert row.usd == pytest.approx(row.seconds * 0.001)
        if row.entry != Entry.RESERVE and row.job_id is not None:
            charged[row.job_id] = charged.get(row.job_id, 0.0) + row.seconds
    assert charged == {row["job_id"]: pytest.approx(row["seconds"], abs=1e-6) for row in attempts}


def test_money_spent_elsewhere_counts_for_every_lane(db: Database, armed: Armed) -> None:
    """On the day that was named, else today's."""
    armed()

    ledger.spend_elsewhere(db, {"usd": 1.5, "note": "API"}, actor="test", now=NOON)
    ledger.spend_elsewhere(db, {"usd": 2, "day": TUESDAY}, actor="test", now=NOON)

    assert spent(db, MONDAY) == (1.5, 0)
    assert spent(db, TUESDAY) == (2.0, 0)


def test_money_written_by_mistake_is_taken_back_no_further_than_it_was_written(
    db: Database, armed: Armed
) -> None:
    """By a row of its own, on its day: what the lane used there stays."""
    armed()
    ledger.spend_elsewhere(db, {"usd": 150}, actor="test", now=NOON)

    ledger.spend_elsewhere(db, {"usd": -148.5, "note": "it was 1.50"}, actor="test", now=NOON)

    assert spent(db, MONDAY) == (1.5, 0)
    for day, remedy in (
        (MONDAY, "give no less than -1.50"),
        (TUESDAY, "name the day it stands in"),
    ):
        with pytest.raises(ConfigError, match=remedy):
            ledger.spend_elsewhere(db, {"usd": -1.51, "day": day}, actor="test", now=NOON)
    ledger.spend_elsewhere(db, {"usd": -1.5}, actor="test", now=NOON)
    assert spent(db, MONDAY) == (0.0, 0)
    notes = [row.note for row in ledger.day_view(db, MONDAY, NOON).rows]
    assert sorted(notes) == ["it was 1.50", "spent elsewhere", "taken back"]


@pytest.mark.parametrize("usd", [0, -3, float("inf"), float("nan"), 1e9])
def test_a_spend_that_is_none_is_refused_and_nothing_is_written(db: Database, usd: float) -> None:
    """Field and remedy, in one line."""
    with pytest.raises(ConfigError, match=r"^usd: ") as refused:
        ledger.spend_elsewhere(db, {"usd": usd}, actor="test", now=NOON)

    assert "\n" not in str(refused.value)
    assert ledger.day_view(db, None, NOON).rows == []


@pytest.mark.parametrize("day", ["0001-01-01", "2019-12-31", "2026-06-03", "9999-12-31"])
def test_a_spend_of_a_day_that_no_report_shows_is_refused(
    db: Database, armed: Armed, day: str
) -> None:
    """A year mistyped; tomorrow is the last day, as in the report."""
    armed()

    with pytest.raises(ConfigError) as refused:
        ledger.spend_elsewhere(db, {"usd": 1, "day": day}, actor="test", now=NOON)

    said = f"day: is no day of the lane (got '{day}'); give a day from 2020-01-01 to tomorrow"
    assert str(refused.value) == said
    assert spent(db, datetime.date.fromisoformat(day)) == (0.0, 0.0)


def test_a_negative_price_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lane would earn money by running."""
    monkeypatch.setenv("NIGHTLANE_PRICE_USD_H", "-1")

    with pytest.raises(ValueError, match="price_usd_h"):
        WorkerSettings()


def _settle(db: Database, number: int) -> None:
    with db.write_tx() as conn:
        row = conn.execute(select(attempt).where(attempt.c.job_id == number)).mappings().one()
        ended = ledger.Ended(**{name: row[name] for name in ledger.Ended._fields})
        ledger.settle(conn, ended, lane="cpu", price_usd_h=1.0, actor="test")


def _running(db: Database, number: int) -> None:
    with db.write_tx() as conn:
        conn.execute(update(job).where(job.c.id == number).values(state="running", attempt=1))
