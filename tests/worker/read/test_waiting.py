"""A queued job says why it waits, and a scheduled drain keeps to it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from sqlalchemy import update

from tests.worker.holding import hold_lane
from worker.db.connection import Database
from worker.db.tables import lane
from worker.drain import drain
from worker.queue.states import State
from worker.queue.submit import claim
from worker.read import jobs
from worker.schedule.policy import Policy, arm
from worker.settings import WorkerSettings


def waits(db: Database, number: int) -> tuple[str, str] | None:
    found = jobs.get_job(db, number).waits_for
    return (found.reason, found.detail) if found else None


def armed(db: Database) -> None:
    arm(db, Policy(interval_min=30), actor="test", now=time.time())


def test_without_a_tick_a_job_waits_for_a_person(db: Database, tally: Callable[..., int]) -> None:
    """It says which command starts it."""
    assert waits(db, tally()) == (
        "NOT_ARMED",
        "nothing starts jobs by itself; run: cockpit drain",
    )


@pytest.mark.requirement("JB-09")
def test_with_a_tick_a_job_waits_for_it(db: Database, tally: Callable[..., int]) -> None:
    """And says how to be faster."""
    armed(db)

    assert waits(db, tally()) == (
        "WAITING_FOR_TICK",
        "the next tick starts it, at most 30 min from now; to start it now, run: cockpit drain",
    )


def test_behind_a_running_job_a_job_waits_for_the_lane(
    db: Database, settings: WorkerSettings, tally: Callable[..., int]
) -> None:
    """Named by its number; the running one itself waits for nothing."""
    first, second = tally(), tally()

    with hold_lane(db, settings) as lease:
        taken = waits(db, second)
        with db.write_tx() as conn:
            claim(conn, lane="cpu", fence=lease.fence + 1, actor="test")
            lease.advance(conn, first)
        lease.fence += 1

        assert taken == ("LANE_BUSY", 'a drain on lane "cpu" is about to take the next job')
        assert waits(db, first) is None
        assert waits(db, second) == (
            "LANE_BUSY",
            f'lane "cpu" runs job {first}; the queue goes on after it',
        )


def test_a_drain_without_signs_of_life_keeps_nobody_waiting(
    db: Database, tally: Callable[..., int]
) -> None:
    """Behind the end of its lease the lane counts as free: the next drain takes it."""
    number = tally()
    with hold_lane(db, db.settings):
        with db.write_tx() as conn:
            conn.execute(update(lane).values(heartbeat_at=lane.c.heartbeat_at - 60))

        found = waits(db, number)

    assert found is not None
    assert found[0] == "NOT_ARMED"


def test_a_scheduled_drain_runs_the_queue_only_when_armed(
    db: Database, settings: WorkerSettings, tally: Callable[..., int]
) -> None:
    """Unarmed it rescues and leaves the rest to a person."""
    number = tally(steps=1)

    drain(settings, scheduled=True)
    before = jobs.get_job(db, number).state
    armed(db)
    drain(settings, scheduled=True)

    assert (before, jobs.get_job(db, number).state) == (State.QUEUED, State.SUCCEEDED)


def test_a_scheduled_drain_rescues_armed_or_not(
    db: Database, settings: WorkerSettings, tally: Callable[..., int]
) -> None:
    """A dead supervisor's job goes back to the queue before anybody asks for permission."""
    number = tally()
    with db.write_tx() as conn:
        claim(conn, lane="cpu", fence=0, actor="the late drain")

    report = drain(settings, scheduled=True)

    assert [settled.job_id for settled in report.rescued] == [number]
    assert report.ran == []
    assert jobs.get_job(db, number).state is State.QUEUED
