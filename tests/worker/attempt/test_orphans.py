"""A job whose drain died is settled by whoever acts on it; a living drain's is left alone."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from tests.deadline import eventually
from tests.worker.holding import hold_lane
from worker.attempt.orphans import settle_orphans
from worker.db.connection import Database
from worker.db.tables import job, lane
from worker.lane.process_id import ProcessIdentity
from worker.queue.states import State
from worker.queue.submit import claim
from worker.read import jobs
from worker.read.lane import lane_status
from worker.settings import WorkerSettings

pytestmark = pytest.mark.requirement("JB-08")
Tally = Callable[..., int]


def test_a_run_whose_drain_and_engine_were_killed_is_settled_by_a_look(
    db: Database,
    tally: Tally,
    start_drain: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """At once, with nothing in the queue and no drain in sight."""
    number = tally(pace=str(tmp_path / "never"))
    drain = start_drain()
    eventually(lambda: jobs.get_job(db, number).result.get("step"), "the first step")
    assert settle_orphans(db) == [], "its drain lives"
    with db.read() as conn:
        known = conn.execute(select(job.c.engine).where(job.c.id == number)).scalar_one()
    drain.signal(signal.SIGKILL)
    drain.finish()
    eventually(lambda: not ProcessIdentity.parse(known).alive(), "the engine's end")

    (settled,) = settle_orphans(db)

    assert (settled.job_id, settled.state) == (number, State.QUEUED)
    assert jobs.attempts(db, number)[0].cause == "LOST"
    assert not lane_status(db, "cpu").held
    assert settle_orphans(db) == []


def test_an_orphan_of_another_lane_is_settled_on_its_own(db: Database, tally: Tally) -> None:
    """Whatever the lane of the one who looks."""
    number = tally()
    other = db.settings.model_copy(update={"lane": "other"})
    with hold_lane(db, other) as lease, db.write_tx() as conn:
        claim(conn, lane="other", fence=lease.fence, actor="the dead")
    with db.write_tx() as conn:
        dead = f"{ProcessIdentity.current().boot_id}:1:999"
        conn.execute(update(lane).where(lane.c.name == "other").values(holder=dead))

    settled = settle_orphans(db)

    assert [(one.job_id, one.state) for one in settled] == [(number, State.QUEUED)]


def test_a_drain_that_lives_and_is_silent_is_left_to_the_next_one(
    db: Database, settings: WorkerSettings, tally: Tally
) -> None:
    """To end it is no business of somebody who asks for something else."""
    number = tally()
    with hold_lane(db, settings) as lease:
        with db.write_tx() as conn:
            claim(conn, lane="cpu", fence=lease.fence, actor="me")
            conn.execute(update(lane).values(heartbeat_at=0.0, beat=0.0))

        assert settle_orphans(db) == []

        assert jobs.get_job(db, number).state is State.RUNNING
