"""Two attempts in a row without a new checkpoint: the job fails and says what it needs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.run_dir import RunDir, write_json
from tests.worker.lane_rows import berlin, row_of
from tests.worker.queue.verbs import by_hand
from worker.db.connection import Database
from worker.drain import drain
from worker.estimate.forecast import expected
from worker.estimate.history import History
from worker.queue.control import retry, retry_fresh
from worker.queue.states import State
from worker.read import jobs
from worker.schedule.policy import Standing
from worker.settings import WorkerSettings

pytestmark = pytest.mark.requirement("LN-15")
Armed = Callable[..., Standing]
Tally = Callable[..., int]
Priced = Callable[..., WorkerSettings]


def clock_from(begin: float) -> Callable[[], float]:
    began = time.monotonic()
    return lambda: begin + time.monotonic() - began


class Attempts:
    """Attempts of one job by hand, each ended by a word."""

    def __init__(self, db: Database, number: int) -> None:
        self.db, self.number = db, number
        self.run = RunDir(db.settings.runs_dir / str(number))
        self.seq = 0

    def end(
        self,
        interrupted: str | None,
        *,
        makes: int | None = None,
        resumed_from: int | None = None,
        begins: bool = True,
        phase: str | None = None,
    ) -> State:
        """Claim, train, and settle as put back; `makes`: the step of its checkpoint."""
        with by_hand(self.db) as hand:
            taken = hand.claim()
            assert taken is not None
            self.run.root.mkdir(parents=True, exist_ok=True)
            if begins:
                self._write(taken.attempt, type="started", resumed_from=resumed_from)
            if phase is not None:
                self._write(taken.attempt, type="progress", phase=phase)
            if makes is not None:
                write_json(self.run.checkpoint(makes) / "complete.json", {"step": makes})
            return hand.settle(taken, State.QUEUED, interrupted=interrupted).state

    def _write(self, number: int, **fields: Any) -> None:
        self.seq += 1
        with self.run.events.open("a") as events:
            events.write(
                json.dumps({"seq": self.seq, "attempt": number, "t": 1.0, **fields}) + "\n"
            )


@pytest.fixture
def attempts(db: Database, tally: Tally) -> Attempts:
    return Attempts(db, tally())


@pytest.mark.parametrize("first", ["BUDGET", "WINDOW", "SILENT", "MEMORY", "DISK_FULL"])
@pytest.mark.parametrize("second", ["BUDGET", "SILENT"])
def test_two_attempts_without_a_checkpoint_fail_the_job(
    attempts: Attempts, first: str, second: str
) -> None:
    """Whatever ended the one and the other."""
    assert attempts.end(first) is State.QUEUED
    assert attempts.end(second) is State.FAILED

    job = jobs.get_job(attempts.db, attempts.number)
    assert job.cause == "NO_PROGRESS"
    assert job.error is not None
    assert "two attempts in a row ended without a new checkpoint: attempt 1 after" in job.error
    assert f"({first}), attempt 2 after" in job.error
    assert job.error.endswith(f"then: cockpit retry {job.id}")


@pytest.mark.requirement("JB-08")
def test_a_lost_server_counts_where_the_attempt_had_one(attempts: Attempts) -> None:
    """Two that sampled and made nothing fail; what found no server cost nothing and waits."""
    assert attempts.end("SERVER_LOST", phase="lane-bringup") is State.QUEUED
    assert attempts.end("SERVER_LOST", phase="lane-bringup") is State.QUEUED
    assert attempts.end("SERVER_LOST", phase="sampling") is State.QUEUED
    assert attempts.end("SERVER_LOST", phase="lane-bringup") is State.QUEUED
    assert attempts.end("SERVER_LOST", phase="training") is State.FAILED

    job = jobs.get_job(attempts.db, attempts.number)
    assert job.cause == "NO_PROGRESS"
    assert "attempt 3 after" in (job.error or "")
    assert "see in serving.log" in (job.error or "")


@pytest.mark.parametrize("persons", ["REQUEUE", "SIGTERM", "LOST", None])
def test_what_a_person_ended_or_a_dead_supervisor_left_counts_for_nothing(
    attempts: Attempts, persons: str | None
) -> None:
    """Neither as one of the two nor as progress between them."""
    assert attempts.end(persons) is State.QUEUED
    assert attempts.end(persons) is State.QUEUED
    assert attempts.end("WINDOW") is State.QUEUED
    assert attempts.end(persons) is State.QUEUED
    assert attempts.end("WINDOW") is State.FAILED


def test_a_new_checkpoint_is_progress(attempts: Attempts) -> None:
    """Night after night, as long as each gets further."""
    assert attempts.end("WINDOW", makes=1) is State.QUEUED
    assert attempts.end("WINDOW", makes=2, resumed_from=1) is State.QUEUED
    assert attempts.end("WINDOW", resumed_from=2) is State.QUEUED
    assert attempts.end("WINDOW", resumed_from=2) is State.FAILED


def test_step_0_is_no_progress(attempts: Attempts) -> None:
    """It is the model that the run began with."""
    assert attempts.end("WINDOW", makes=0) is State.QUEUED
    assert attempts.end("WINDOW", resumed_from=0) is State.FAILED


def test_an_attempt_that_never_began_to_train_made_nothing(attempts: Attempts) -> None:
    """It hung while it loaded its model; the checkpoints of before are not its own."""
    assert attempts.end("WINDOW", makes=3) is State.QUEUED
    assert attempts.end("SILENT", begins=False) is State.QUEUED
    assert attempts.end("SILENT", begins=False) is State.FAILED


def test_a_retry_has_two_attempts_again(attempts: Attempts) -> None:
    """A person has seen to it meanwhile."""
    attempts.end("WINDOW")
    attempts.end("WINDOW")
    retry(attempts.db, attempts.number, actor="test")

    assert attempts.end("WINDOW") is State.QUEUED
    assert attempts.end("WINDOW") is State.FAILED


def test_the_forecast_learns_what_was_not_enough(attempts: Attempts) -> None:
    """Tried again it is expected to need more than it got, and so is the same as a new job."""
    db = attempts.db
    attempts.end("WINDOW")
    attempts.end("WINDOW")
    given = jobs.attempts(db, attempts.number)[-1].seconds
    fresh = retry_fresh(db, attempts.number, actor="test")
    retry(db, attempts.number, actor="test")
    settings = db.settings.model_copy(update={"estimate_hours": 1e-9})

    with db.read() as conn:
        found = [expected(History(conn), settings, row_of(db, n)) for n in (attempts.number, fresh)]

    assert [one.basis for one in found] == ["tried", "tried"]
    assert all(one.seconds == pytest.approx(1.1 * given) for one in found)


def test_a_run_that_no_night_is_long_enough_for_gives_way(
    db: Database, armed: Armed, priced: Priced, tally: Tally, tmp_path: Path
) -> None:
    """A dollar a second, a cap of one, two nights: it fails with the figures, the next one runs."""
    settings = priced(price_usd_h=3600.0, estimate_hours=1e-5, meter_s=0.1)
    number = tally(pace=str(tmp_path / "never"), saves=False)
    behind = tally(steps=1)

    for night in ("2026-06-01T12:00", "2026-06-02T12:00"):
        begins = berlin(night)
        armed(at=begins, cap_usd=1.0)
        report = drain(settings, scheduled=True, clock=clock_from(begins))

    failed = jobs.get_job(db, number)
    assert (failed.state, failed.cause) == (State.FAILED, "NO_PROGRESS")
    assert failed.error is not None
    assert "a day's $1 at $3600 an hour allow 1 s" in failed.error
    assert "lower" not in failed.error, "the kind has no setting for it"
    assert jobs.get_job(db, behind).attempt or report.put_off
