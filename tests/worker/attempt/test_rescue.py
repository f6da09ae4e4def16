"""Jobs whose supervisor is gone, as their files and rows tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update

from engine.contract.events import EventLog
from engine.contract.run_dir import RunDir
from tests.worker.holding import hold_lane
from worker.attempt.rescue import rescue
from worker.attempt.runner.local import LocalRunner
from worker.attempt.writing import Settled
from worker.db.connection import Database
from worker.db.tables import job
from worker.queue.states import State
from worker.queue.submit import claim
from worker.read import jobs
from worker.settings import WorkerSettings


@pytest.fixture
def orphan(db: Database, tally: Callable[..., int]) -> int:
    """A claimed job of a drain that is no more, with an empty run directory."""
    number = tally()
    with db.write_tx() as conn:
        claim(conn, lane="cpu", fence=0, actor="the late drain")
    RunDir(db.settings.runs_dir / str(number)).attempt(1).root.mkdir(parents=True)
    return number


def rescued(db: Database, settings: WorkerSettings) -> list[Settled]:
    with hold_lane(db, settings) as lease:
        return rescue(lease, LocalRunner(settings))


def write(db: Database, number: int, *events: dict[str, Any]) -> None:
    log = EventLog(db.settings.runs_dir / str(number) / "events.jsonl", attempt=1)
    for event in events:
        log.write(event.pop("type"), **event)
    log.close()


@pytest.mark.requirement("LN-10")
def test_a_rescue_finishes_the_fold_of_the_dead_attempt(
    db: Database, settings: WorkerSettings, orphan: int
) -> None:
    """What the engine still wrote after its supervisor died is not lost."""
    write(
        db,
        orphan,
        {"type": "started", "resumed_from": None},
        {"type": "progress", "phase": "training", "step": 7},
        {"type": "metric", "step": 7, "values": {"pool/score": 0.5}},
    )

    assert [settled.state for settled in rescued(db, settings)] == [State.QUEUED]

    row = jobs.get_job(db, orphan)
    assert row.result == {"status": "running", "phase": "training", "step": 7}
    assert jobs.metrics(db, orphan) == {"pool/score": [(7, 0.5)]}


def test_an_engine_that_had_finished_is_not_run_again(
    db: Database, settings: WorkerSettings, orphan: int
) -> None:
    """Only the settlement was missing."""
    write(
        db,
        orphan,
        {"type": "started", "resumed_from": None},
        {"type": "finished", "status": "done", "result": {"total": 3}},
    )

    assert [settled.state for settled in rescued(db, settings)] == [State.SUCCEEDED]
    assert jobs.get_job(db, orphan).result["total"] == 3


@pytest.mark.parametrize(
    ("reason", "state"),
    [("operator", State.ABORTED), ("cancel", State.CANCELLED), ("sigterm", State.QUEUED)],
)
def test_a_stop_request_that_nobody_settled_is_settled_by_its_reason(
    db: Database, settings: WorkerSettings, orphan: int, reason: str, state: State
) -> None:
    """Who asked for a stop gets it, also when the supervisor died over it."""
    abort = RunDir(db.settings.runs_dir / str(orphan)).attempt(1).abort
    abort.write_text(json.dumps({"reason": reason}))

    assert [settled.state for settled in rescued(db, settings)] == [state]


@pytest.mark.requirement("JB-08")
def test_a_job_that_lost_too_many_attempts_fails_with_the_cause(
    db: Database, settings: WorkerSettings, orphan: int
) -> None:
    """A job that takes the machine down is not tried for ever."""
    with db.write_tx() as conn:
        conn.execute(update(job).values(rescues=settings.max_attempts - 1))

    assert [settled.cause for settled in rescued(db, settings)] == ["LOST"]
    assert jobs.get_job(db, orphan).state is State.FAILED


def test_a_job_that_was_stopped_in_order_loses_no_attempt(
    db: Database, settings: WorkerSettings, orphan: int
) -> None:
    """Only a dead supervisor or machine counts against the cap."""
    with db.write_tx() as conn:
        conn.execute(update(job).values(rescues=0, attempt=settings.max_attempts + 3))
    (db.settings.runs_dir / str(orphan) / "attempts/008").mkdir()

    assert [settled.state for settled in rescued(db, settings)] == [State.QUEUED]


def test_a_run_whose_files_cannot_be_read_fails_and_the_others_are_settled(
    db: Database, settings: WorkerSettings, orphan: int, tally: Callable[..., int]
) -> None:
    """One run's files must not keep the queue from running for ever."""
    events = db.settings.runs_dir / str(orphan) / "events.jsonl"
    events.mkdir()
    other = tally(seed=2)
    with db.write_tx() as conn:
        claim(conn, lane="cpu", fence=0, actor="the late drain")

    found = {settled.job_id: settled for settled in rescued(db, settings)}

    assert {number: settled.state for number, settled in found.items()} == {
        orphan: State.FAILED,
        other: State.QUEUED,
    }
    assert (found[orphan].cause, "events.jsonl" in str(found[orphan].error)) == ("NO_RESULT", True)


def test_a_running_job_of_another_lane_is_left_alone(
    db: Database, settings: WorkerSettings, orphan: int
) -> None:
    """Its own lane's next drain judges it."""
    other = settings.model_copy(update={"lane": "gpu1"})

    assert rescued(db, other) == []
    assert jobs.get_job(db, orphan).state is State.RUNNING
