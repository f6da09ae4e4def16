"""Policy, ledger, decisions, resident and report: the same on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

from tests.worker.lane_rows import BERLIN, NOON, charge, ended, row_of
from worker.budget import ledger
from worker.clock.night import night_at
from worker.clock.window import local_day
from worker.db import decisions
from worker.db.connection import Database
from worker.lane.resident import owed
from worker.queue.deferral import Reason
from worker.report.snapshot import report_of
from worker.schedule import governor, policy
from worker.schedule.governor import Memory, Terms
from worker.schedule.policy import Policy, arm

Tally = Callable[..., int]


def test_a_night_is_judged_metered_and_told(db: Database, tally: Tally) -> None:
    """Armed, an hour charged, the next job over the cap, the report kept with its hash."""
    db.settings = db.settings.model_copy(update={"price_usd_h": 1.0})
    arm(db, Policy(zone="Europe/Berlin", cap_usd=1.5), actor="test", now=NOON)
    first, second = tally(steps=1), tally(steps=2)
    charge(db, first, seconds=3600, at=NOON + 3600)
    ended(db, first, at=NOON + 3600, seconds=3600.0)
    found = policy.standing(db)
    terms = Terms(db.settings, found, NOON + 3600)

    with db.read() as conn:
        look = governor.Look(conn, db.settings.lane)
        ruling = governor.judge(look, terms, row_of(db, second), lambda: Memory(20, 25, 2))
    assert ruling.deferral is not None
    with db.write_tx() as conn:
        governor.put_off(
            conn, "cpu", second, ruling.deferral, numbers=ruling.numbers, actor="test", now=NOON + 1
        )
    waiting = row_of(db, second)
    with db.write_tx() as conn:
        governor.ask_again(conn)

    assert waiting["defer_reason"] == Reason.OVER_DAILY_CAP
    assert row_of(db, second)["defer_reason"] is None
    day = ledger.day_view(db, local_day(NOON, BERLIN), NOON)
    assert (day.spent_usd, day.used_hours) == (1.0, 1.0)
    [put_off] = [e for e in decisions.newest(db, "cpu", 9) if e.what == "defer"]
    assert (put_off.job_id, put_off.numbers["cap_usd"]) == (second, 1.5)
    night = night_at(NOON + 60, BERLIN)
    kept = report_of(db, night.day, night.end)
    assert kept == report_of(db, night.day, night.end + 60)
    assert (kept.ran, kept.spent_usd) == (1, 1.0)
    assert not owed(db)
