"""One word, one sentence and one moment for each job that waits."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import update

from tests.worker.holding import hold_lane
from tests.worker.queue.verbs import by_hand
from worker.attempt import supervisor
from worker.attempt.settlement import DISK_PAUSE_S
from worker.attempt.supervisor import RunDirectoryError
from worker.db.connection import Database, open_database
from worker.db.tables import job
from worker.drain import drain
from worker.lane import accelerator
from worker.lane.accelerator import NoLaneError
from worker.queue import control, pausing
from worker.queue.states import State
from worker.read import jobs
from worker.read.waiting import Waiting
from worker.settings import WorkerSettings

Tally = Callable[..., int]
pytestmark = pytest.mark.requirement("JB-09")


def waits(db: Database, number: int) -> Waiting:
    found = jobs.get_job(db, number).waits_for
    assert found is not None
    return found


@pytest.mark.parametrize("full", [errno.ENOSPC, errno.EDQUOT])
def test_a_job_that_found_the_disk_full_waits_a_while_and_says_so(
    db: Database,
    settings: WorkerSettings,
    tally: Tally,
    monkeypatch: pytest.MonkeyPatch,
    full: int,
) -> None:
    """The drain ends with a loud error; the job is queued, and nobody tries it in a tight loop."""
    number = tally()

    def no_room(path: Path, value: object) -> None:
        raise OSError(full, "No space left on device", str(path))

    monkeypatch.setattr(supervisor, "write_json", no_room)
    with pytest.raises(RunDirectoryError, match=f"No space left .*job {number} is queued"):
        drain(settings)

    found = waits(db, number)
    assert found.reason == "DISK_FULL"
    assert found.next_eligible_at == pytest.approx(time.time() + DISK_PAUSE_S, abs=60)
    assert drain(settings).ran == []
    monkeypatch.undo()
    with by_hand(db) as hand:
        assert hand.claim() is None
        assert hand.claim(now=time.time() + DISK_PAUSE_S + 1) is not None


def test_a_lane_without_its_accelerator_runs_nothing_and_says_so(
    db: Database, settings: WorkerSettings, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that did not load must not send a night's work to the processor."""
    monkeypatch.setattr(accelerator, "SIGNS", ())
    number = tally()
    gpu = settings.model_copy(update={"lane": "gpu0"})
    db.settings = gpu

    assert waits(db, number).reason == "NO_LANE"
    with pytest.raises(NoLaneError, match=r"set NIGHTLANE_LANE=cpu to run on the processor"):
        drain(gpu)

    assert jobs.get_job(db, number).state is State.QUEUED
    monkeypatch.setattr(accelerator, "SIGNS", (Path("/proc"),))
    assert waits(db, number).reason == "NOT_ARMED"


def test_behind_a_running_job_the_wait_is_as_long_as_its_engine_expects(
    db: Database, tally: Tally
) -> None:
    """Nobody knows better; without an estimate no moment is told."""
    first, second = tally(), tally()
    with by_hand(db) as hand:
        hand.claim()
        assert waits(db, second).next_eligible_at is None
        with db.write_tx() as conn:
            conn.execute(update(job).where(job.c.id == first).values(result={"eta_s": 90}))

        found = waits(db, second)

    assert found.reason == "LANE_BUSY"
    assert found.next_eligible_at == pytest.approx(time.time() + 90, abs=30)


def test_behind_a_drain_of_another_data_directory_the_lane_is_said_to_be_busy(
    db: Database, settings: WorkerSettings, tally: Tally, tmp_path: Path
) -> None:
    """Nothing of it stands in this database, and a drain would be refused."""
    number = tally()
    other = settings.model_copy(update={"data_dir": tmp_path / "other"})

    with open_database(other) as theirs, hold_lane(theirs, other):
        found = waits(db, number)

    assert found.reason == "LANE_BUSY"
    assert f"a drain of {tmp_path / 'other'} (process {os.getpid()})" in found.detail
    assert waits(db, number).reason == "NOT_ARMED"


def test_what_concerns_the_job_alone_is_told_before_what_concerns_the_queue(
    db: Database, tally: Tally
) -> None:
    """Resuming the queue would not help it."""
    first = tally()
    child = tally(steps=1)
    control.edit(db, child, {"after": [first]}, actor="test")
    pausing.pause(db, actor="cli:ada")

    assert [waits(db, number).reason for number in (first, child)] == ["PAUSED", "WAITING_FOR"]
