"""Who has the lane decides when the queue goes on: one moment, wherever it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import update

from tests.worker.holding import hold_lane
from tests.worker.lane_rows import NOON, berlin
from worker.db.connection import Database
from worker.db.tables import job, lane
from worker.queue.submit import claim
from worker.read import jobs
from worker.read.tonight import Preview, preview
from worker.schedule import policy
from worker.schedule.governor import Memory
from worker.schedule.policy import Standing
from worker.settings import WorkerSettings

Armed = Callable[..., Standing]
Tally = Callable[..., int]
ROOMY = Memory(20.0, 25.0, 2.0)
ETA_S = 600.0
pytestmark = pytest.mark.requirement("JB-09")


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noon for whoever asks what a job waits for."""
    monkeypatch.setattr("worker.read.jobs.time.time", lambda: NOON)


@contextmanager
def running(db: Database, *, scheduled: bool, eta_s: object = ETA_S) -> Iterator[None]:
    """A drain that runs the first job of the queue at noon."""
    with hold_lane(db, db.settings, scheduled=scheduled) as lease:
        with db.write_tx() as conn:
            claimed = claim(conn, lane="cpu", fence=lease.fence + 1, actor="test")
            assert claimed
            lease.advance(conn, claimed.job_id)
            lease.fence += 1
            conn.execute(update(job).where(job.c.lane == "cpu").values(result={"eta_s": eta_s}))
            conn.execute(update(lane).values(heartbeat_at=NOON))
        yield


def told(db: Database, number: int) -> float | None:
    found = jobs.get_job(db, number).waits_for
    assert found is not None
    assert found.reason == "LANE_BUSY"
    return found.next_eligible_at


def look(db: Database) -> Preview:
    return preview(db, NOON, lambda: ROOMY)


def test_behind_a_persons_drain_the_queue_goes_on_outside_of_the_window_too(
    db: Database, armed: Armed, tally: Tally
) -> None:
    """It asks no policy; the preview begins at the same moment."""
    armed(window="20:00-07:00", cap_usd=0)
    tally()
    waiting = tally()

    with running(db, scheduled=False):
        moment, found = told(db, waiting), look(db)

    assert moment == NOON + ETA_S
    assert (found.starts_at, found.reason, found.ordered) == (moment, None, True)
    assert [(step.job_id, step.starts_at) for step in found.steps] == [(waiting, moment)]


def test_behind_a_scheduled_drain_the_queue_goes_on_when_the_window_opens_again(
    db: Database, armed: Armed, tally: Tally
) -> None:
    """The window closes before the running job is expected to be done."""
    armed(window="11:00-12:05")
    tally()
    waiting = tally()

    with running(db, scheduled=True):
        moment, found = told(db, waiting), look(db)

    assert moment == berlin("2026-06-02T11:00")
    assert [step.starts_at for step in found.steps] == [moment]
    assert not found.ordered


def test_inside_the_window_the_queue_goes_on_as_soon_as_the_lane_is_free(
    db: Database, armed: Armed, tally: Tally
) -> None:
    """The same moment whoever drains."""
    armed(window="11:00-14:00")
    tally()
    waiting = tally()

    with running(db, scheduled=True):
        moment, found = told(db, waiting), look(db)

    assert moment == NOON + ETA_S
    assert [step.starts_at for step in found.steps] == [moment]


def test_behind_the_last_job_of_a_policy_that_was_switched_off_nobody_knows(
    db: Database, armed: Armed, tally: Tally
) -> None:
    """The scheduled drain ends with its job, and nothing starts the next one."""
    armed()
    tally()
    waiting = tally()

    with running(db, scheduled=True):
        policy.disarm(db, actor="test", now=NOON)
        moment, found = told(db, waiting), look(db)

    assert moment is None
    assert (found.starts_at, found.reason) == (None, "NOT_ARMED")


@pytest.mark.parametrize("eta_s", [None, "soon", float("inf")])
def test_an_engine_that_names_no_time_leaves_it_unknown(
    db: Database, armed: Armed, tally: Tally, eta_s: object
) -> None:
    """No moment is made up, whatever an engine of another version wrote."""
    armed()
    tally()
    waiting = tally()

    with running(db, scheduled=True, eta_s=eta_s):
        assert told(db, waiting) is None


def test_a_running_job_that_spends_the_cap_shows_when(
    db: Database, armed: Armed, tally: Tally, priced: Callable[..., WorkerSettings]
) -> None:
    """It needs ten minutes yet at 6 $/h, and the cap is half a dollar: half of them."""
    priced(price_usd_h=6.0)
    armed(cap_usd=0.5)
    tally()

    with running(db, scheduled=True):
        found = look(db)

    assert [one.at for one in found.money] == [NOON, NOON + ETA_S]
    assert [one.usd for one in found.money] == pytest.approx([0.0, 1.0])
    assert found.capped_at == pytest.approx(NOON + ETA_S / 2)
