"""Every attempt leaves a row of what it held the lane for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select, update

from tests.worker.holding import hold_lane
from tests.worker.queue.verbs import by_hand
from worker.attempt.rescue import rescue
from worker.attempt.runner.local import LocalRunner
from worker.db.connection import Database
from worker.db.tables import job
from worker.queue.states import State
from worker.queue.submit import claim
from worker.read import jobs

Tally = Callable[..., int]
pytestmark = pytest.mark.requirement("JB-08")


def orphan(db: Database, **columns: Any) -> None:
    """The newest claim belongs to a supervisor that is no more."""
    with db.write_tx() as conn:
        conn.execute(update(job).where(job.c.state == State.RUNNING).values(**columns))


def test_a_settled_attempt_is_charged_up_to_its_settlement(db: Database, tally: Tally) -> None:
    """One row an attempt, whatever came of it."""
    number = tally()
    with by_hand(db) as hand:
        for to in (State.QUEUED, State.FAILED):
            taken = hand.claim()
            assert taken is not None
            orphan(db, started_beat=time.monotonic() - 7)
            hand.settle(taken, to, cause="X" if to is State.FAILED else None)

    rows = jobs.attempts(db, number)
    assert [(row.n, row.outcome, row.cause, row.lane) for row in rows] == [
        (1, State.QUEUED, None, "cpu"),
        (2, State.FAILED, "X", "cpu"),
    ]
    assert [row.seconds for row in rows] == pytest.approx([7, 7], abs=5)
    assert all(row.ended_at >= row.started_at for row in rows)


def test_a_dead_supervisors_attempt_is_charged_up_to_its_last_heartbeat(
    db: Database, tally: Tally
) -> None:
    """Nobody pays for the hours until the next drain; the job is queued to resume."""
    number = tally()
    with db.write_tx() as conn:
        claim(conn, lane="cpu", fence=0, actor="the late drain")
    died = time.time() - 5000
    # Beats of another boot: only their difference means anything.
    orphan(db, attempt_started_at=died - 60, heartbeat_at=died, started_beat=1e6, beat=1e6 + 60)

    with hold_lane(db, db.settings) as lease:
        rescue(lease, LocalRunner(db.settings))

    (row,) = jobs.attempts(db, number)
    assert (row.seconds, row.ended_at, row.outcome) == (60, died, State.QUEUED)
    assert jobs.get_job(db, number).state is State.QUEUED


@pytest.mark.parametrize("step", [3600, -3600])
def test_a_wall_clock_that_is_corrected_charges_nobody(
    db: Database, tally: Tally, step: float
) -> None:
    """Both ends are taken on the boot's own clock."""
    number = tally()
    with by_hand(db) as hand:
        taken = hand.claim()
        assert taken is not None
        orphan(db, attempt_started_at=time.time() - step)
        hand.settle(taken, State.SUCCEEDED)

    assert jobs.attempts(db, number)[0].seconds < 60


def test_the_heartbeat_moves_both_clocks(db: Database, tally: Tally) -> None:
    """Else a rescue would charge by one and date by the other."""
    tally()
    with by_hand(db) as hand:
        hand.claim()
        orphan(db, heartbeat_at=1.0, beat=1.0)
        hand.lease.keep()
    with db.read() as conn:
        row = conn.execute(select(job.c.heartbeat_at, job.c.beat)).one()

    assert row.heartbeat_at == pytest.approx(time.time(), abs=60)
    assert row.beat == pytest.approx(time.monotonic(), abs=60)
