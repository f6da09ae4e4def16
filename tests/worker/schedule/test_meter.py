"""The meter and the brake beside a running attempt, with real engines and a clock that is moved."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.contract.run_dir import AbortReason, RunDir
from tests.worker.holding import hold_lane
from tests.worker.lane_rows import NOON, berlin, ended, row_of, succeeded
from worker.budget import ledger
from worker.budget.ledger import Entry
from worker.budget.price import set_price
from worker.db import decisions
from worker.db.connection import Database
from worker.drain import drain
from worker.lane.lease import LeaseLostError
from worker.queue.deferral import Reason
from worker.queue.states import State
from worker.queue.submit import claim
from worker.read import jobs
from worker.schedule.meter import LaneMeter, Running
from worker.schedule.policy import Standing, disarm
from worker.settings import WorkerSettings

Armed = Callable[..., Standing]
Tally = Callable[..., int]
Priced = Callable[..., WorkerSettings]


def clock_from(begin: float) -> Callable[[], float]:
    """A wall clock that shows `begin` now."""
    began = time.monotonic()
    return lambda: begin + time.monotonic() - began


@pytest.mark.requirement("LN-05", "JB-09")
def test_a_cap_that_is_reached_in_a_run_stops_it_at_a_checkpoint_for_the_day(
    db: Database, armed: Armed, priced: Priced, tally: Tally, tmp_path: Path
) -> None:
    """A dollar a second, a cap of one: queued again, put off until tomorrow, to resume."""
    settings = priced(price_usd_h=3600.0, estimate_hours=1e-5, meter_s=0.1)
    armed(cap_usd=1.0)
    number = tally(pace=str(tmp_path / "never"))

    report = drain(settings, scheduled=True, clock=clock_from(NOON))

    assert [(settled.state, settled.later) for settled in report.ran] == [(State.QUEUED, True)]
    waiting = jobs.get_job(db, number)
    row = row_of(db, number)
    assert row["defer_reason"] == Reason.OVER_DAILY_CAP
    assert row["next_eligible_at"] == berlin("2026-06-02T00:00")
    attempt = RunDir(waiting.run_dir).attempt(1)
    abort = attempt.read_abort()
    assert abort is not None
    assert abort.reason is AbortReason.BUDGET
    assert RunDir(waiting.run_dir).checkpoint(1).exists()
    stops = [entry for entry in decisions.newest(db, "cpu", 20) if entry.what == "stop"]
    assert [(stop.job_id, stop.rule) for stop in stops] == [(number, "budget")]
    assert stops[0].numbers["today_usd"] >= 1.0


@pytest.mark.requirement("LN-05")
def test_the_next_day_goes_on_with_it(
    db: Database, armed: Armed, priced: Priced, tally: Tally, tmp_path: Path
) -> None:
    """Midnight has passed: yesterday's dollar is no longer counted, the checkpoint is resumed."""
    settings = priced(price_usd_h=3600.0, estimate_hours=1e-5, meter_s=0.1)
    armed(cap_usd=1.0)
    go = tmp_path / "go"
    number = tally(pace=str(go), steps=2)
    drain(settings, scheduled=True, clock=clock_from(NOON))
    go.touch()

    drain(settings, scheduled=True, clock=clock_from(NOON + 3600))
    same_day = jobs.get_job(db, number)
    armed(at=NOON + 7200, cap_usd=100.0)
    drain(settings, scheduled=True, clock=clock_from(berlin("2026-06-02T00:00:01")))

    assert same_day.attempt == 1
    done = jobs.get_job(db, number)
    assert (done.state, done.attempt) == (State.SUCCEEDED, 2)


@pytest.mark.requirement("LN-05", "JB-09")
@pytest.mark.parametrize("changed", ["price", "spent", "forecast"])
def test_a_job_that_the_cap_put_off_is_asked_again_when_its_reason_may_have_changed(
    db: Database, armed: Armed, priced: Priced, tally: Tally, changed: str
) -> None:
    """By the next scheduled drain, whatever changed it: it had waited for the next day."""
    settings = priced(price_usd_h=8.0, estimate_hours=1.0)
    armed(cap_usd=5.0)
    ledger.spend_elsewhere(db, {"usd": 1.0}, actor="test", now=NOON)
    number = tally(steps=1)
    drain(settings, scheduled=True, clock=clock_from(NOON))
    assert row_of(db, number)["defer_reason"] == Reason.OVER_DAILY_CAP
    assert drain(settings, scheduled=True, clock=clock_from(NOON + 60)).ran == []

    if changed == "price":
        set_price(db, {"usd_h": 0.5}, actor="test", now=NOON + 120)
    elif changed == "spent":
        ledger.spend_elsewhere(db, {"usd": -1.0}, actor="test", now=NOON + 120)
        set_price(db, {"usd_h": 5.0}, actor="test", now=NOON + 120)
    else:
        done = tally(steps=2)
        ended(db, done, at=NOON - 86_400, seconds=2.0)
        succeeded(db, done)
    report = drain(settings, scheduled=True, clock=clock_from(NOON + 180))

    assert [settled.job_id for settled in report.ran][:1] == [number]
    assert jobs.get_job(db, number).state is State.SUCCEEDED


@pytest.mark.requirement("LN-05")
def test_the_end_of_the_window_stops_a_run_that_goes_on_the_next_night(
    db: Database, settings: WorkerSettings, armed: Armed, tally: Tally, tmp_path: Path
) -> None:
    """It waits with the reason OUTSIDE_WINDOW and the time at which the window opens."""
    armed(window="22:00-07:00")
    number = tally(pace=str(tmp_path / "never"))

    drain(settings, scheduled=True, clock=clock_from(berlin("2026-06-02T06:59:59")))

    waiting = jobs.get_job(db, number)
    abort = RunDir(waiting.run_dir).attempt(1).read_abort()
    assert waiting.state is State.QUEUED
    assert abort is not None
    assert abort.reason is AbortReason.WINDOW


def test_a_scheduled_drain_outside_the_window_runs_nothing(
    db: Database, settings: WorkerSettings, armed: Armed, tally: Tally
) -> None:
    """It rescues and restores, and ends."""
    armed(window="22:00-07:00")
    number = tally()

    drain(settings, scheduled=True, clock=clock_from(NOON))

    assert jobs.get_job(db, number).attempt == 0


@pytest.mark.requirement("LN-05")
def test_switching_off_in_the_middle_lets_the_job_end_and_starts_no_other(
    db: Database, settings: WorkerSettings, armed: Armed, tally: Tally
) -> None:
    """Between two jobs the policy is asked again."""
    armed()
    first, second = tally(steps=1), tally(steps=2)

    def off_after_the_first() -> bool:
        if jobs.get_job(db, first).state is State.SUCCEEDED:
            disarm(db, actor="test", now=NOON)
        return False

    drain(settings, scheduled=True, until=off_after_the_first, clock=clock_from(NOON))

    assert jobs.get_job(db, first).state is State.SUCCEEDED
    assert jobs.get_job(db, second).attempt == 0


@pytest.mark.requirement("LN-05")
@pytest.mark.parametrize("terms", [{"window": "22:00-07:00"}, {"cap_usd": 1.0}, {"expires": 3600}])
def test_a_policy_that_was_switched_off_stops_nothing_any_more(
    db: Database, armed: Armed, priced: Priced, tally: Tally, terms: dict[str, float | str]
) -> None:
    """What runs goes on to its end, whatever the terms would have said: its hours, its money."""
    settings = priced(price_usd_h=3600.0, meter_s=30)
    evening = berlin("2026-06-01T23:00")
    expires = {"expires_at": evening + 3600} if "expires" in terms else terms
    standing = armed(at=evening, **expires)
    now, beat = evening, 0.0
    number = tally()
    with hold_lane(db, settings) as lease:
        with db.write_tx() as conn:
            assert claim(conn, lane="cpu", fence=lease.fence, actor="test")
        meter = LaneMeter(
            lease,
            Running(number, 1, "test"),
            obeyed=standing,
            clock=lambda: now,
            beat=lambda: beat,
        )
        assert meter.look() is None
        disarm(db, actor="test", now=now)
        now, beat = now + 12 * 3600, 1.5  # before the meter reads the policy by itself

        assert meter.look() is None

        now, beat = now + 60, 100.0
        assert meter.look() is None
    assert meter.tripped is None


def test_a_window_that_was_made_longer_in_the_middle_is_obeyed_at_its_old_end(
    db: Database, settings: WorkerSettings, armed: Armed, tally: Tally
) -> None:
    """What stops a run is the policy of this moment, not that of half a minute ago."""
    begins = berlin("2026-06-02T06:59:50")
    standing = armed(at=begins, window="22:00-07:00")
    now, beat = begins, 0.0
    number = tally()
    with hold_lane(db, settings) as lease:
        with db.write_tx() as conn:
            claim(conn, lane="cpu", fence=lease.fence, actor="test")
        meter = LaneMeter(
            lease, Running(number, 1, "test"), obeyed=standing, clock=lambda: now, beat=lambda: beat
        )
        assert meter.look() is None
        armed(at=now + 1, window="22:00-09:00")

        now, beat = berlin("2026-06-02T07:00:01"), 11.0
        longer = meter.look()
        now, beat = berlin("2026-06-02T09:00:01"), 12.0
        over = meter.look()

    assert longer is None
    assert over is not None
    assert over.reason is AbortReason.WINDOW


def test_the_meter_writes_what_was_used_since_its_last_row(
    db: Database, priced: Priced, tally: Tally
) -> None:
    """A beat by hand: the first look writes at once, the next ones not before 30 s have passed."""
    settings = priced(price_usd_h=1.0, meter_s=30)
    number = tally()
    beats = iter([0.0, 10.0, 30.0, 45.0, 60.0])
    with hold_lane(db, settings) as lease:
        with db.write_tx() as conn:
            found = claim(conn, lane="cpu", fence=lease.fence, actor="test")
        assert found is not None
        meter = LaneMeter(
            lease,
            Running(number, 1, "test"),
            obeyed=None,
            clock=lambda: NOON,
            beat=lambda: next(beats),
        )
        for _ in range(4):
            meter.look()

    rows = ledger.day_view(db, None, NOON).rows
    metered = [row.seconds for row in rows if row.entry == Entry.METER]
    assert metered == [10.0, 35.0]


def test_a_meter_of_a_lane_that_was_taken_over_writes_nothing(
    db: Database, settings: WorkerSettings, tally: Tally
) -> None:
    """Its fence is old: the error stops its supervisor."""
    number = tally()
    with hold_lane(db, settings) as lease:
        with db.write_tx() as conn:
            claim(conn, lane="cpu", fence=lease.fence + 7, actor="the next drain")
        beats = iter([0.0, 100.0])
        meter = LaneMeter(lease, Running(number, 1, "test"), obeyed=None, beat=lambda: next(beats))

        with pytest.raises(LeaseLostError):
            meter.look()

    assert ledger.day_view(db, None, time.time()).rows == []
