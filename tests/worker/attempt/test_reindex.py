"""Rebuilt = live: result and metrics are what the files say, at any time."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update

from engine.contract.run_dir import RunDir
from tests.deadline import eventually
from worker.attempt.reindex import JobRunningError, reindex
from worker.db.connection import Database
from worker.db.tables import job, metric
from worker.drain import drain
from worker.queue.lookup import JobNotFoundError
from worker.queue.refusals import NoEventsError
from worker.read import jobs
from worker.settings import WorkerSettings


def projections(db: Database, number: int) -> tuple[Any, Any]:
    return jobs.get_job(db, number).result, jobs.metrics(db, number)


def forget(db: Database) -> None:
    """Lose everything that can be rebuilt."""
    with db.write_tx() as conn:
        conn.execute(delete(metric))
        conn.execute(update(job).values(result={"wrong": 1}, ingested_seq=0, ingested_offset=0))


def test_rebuilt_is_live_after_a_kill_in_the_middle_and_after_the_end(
    settings: WorkerSettings,
    db: Database,
    tally: Callable[..., int],
    start_drain: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Once with the drain shot mid-run and rescued, once when the resumed job is done."""
    go = tmp_path / "go"
    number = tally(pace=str(go), steps=4)
    doomed = start_drain()
    eventually(lambda: jobs.get_job(db, number).result.get("step"), "the first step", 60)
    doomed.signal(signal.SIGKILL)
    doomed.finish()
    drain(settings, scheduled=True)

    for finish in (False, True):
        if finish:
            go.touch()
            drain(settings)
        live = projections(db, number)
        forget(db)
        report = reindex(db, number)
        assert projections(db, number) == live
        assert report.changed
        assert report.metrics == sum(map(len, live[1].values()))
        assert not reindex(db, number).changed

    assert live[0]["total"] == 4
    assert live[0]["mem_trace"]["total_gb"] > 0


def test_a_resumed_job_goes_on_from_a_rebuilt_row(
    settings: WorkerSettings,
    db: Database,
    tally: Callable[..., int],
    start_drain: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Reindexing also says how far the file was read, so nothing is read twice or skipped."""
    go = tmp_path / "go"
    number = tally(pace=str(go), steps=4)
    stopped = start_drain()
    eventually(lambda: jobs.get_job(db, number).result.get("step"), "the first step", 60)
    stopped.signal(signal.SIGTERM)
    stopped.finish()

    forget(db)
    reindex(db, number)
    go.touch()
    drain(settings)

    pool = [(step, round(score * 10)) for step, score in jobs.metrics(db, number)["pool/score"]]
    assert pool == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_a_running_job_is_not_rebuilt(
    db: Database, tally: Callable[..., int], start_drain: Callable[..., Any], tmp_path: Path
) -> None:
    """Its supervisor is the only writer."""
    number = tally(pace=str(tmp_path / "go"))
    start_drain()
    eventually(lambda: jobs.get_job(db, number).result.get("step"), "the first step", 60)

    with pytest.raises(JobRunningError, match=f"job {number} is running; reindex it when"):
        reindex(db, number)


def test_a_job_that_never_ran_has_nothing_to_rebuild(
    db: Database, tally: Callable[..., int]
) -> None:
    """No files, an empty result; a job nobody knows is an error."""
    assert reindex(db, tally())[1:] == (0, 0, False)
    with pytest.raises(JobNotFoundError):
        reindex(db, 99)


@pytest.mark.parametrize("left", ["nothing", "an empty file", "no run directory"])
def test_a_result_whose_events_are_gone_stays_as_it_is(
    settings: WorkerSettings, db: Database, tally: Callable[..., int], left: str
) -> None:
    """A restored database on another machine: the row is all that is left, so it is kept."""
    number = tally()
    drain(settings)
    live = projections(db, number)
    run = RunDir(jobs.get_job(db, number).run_dir)
    run.events.unlink()
    if left == "an empty file":
        run.events.touch()
    elif left == "no run directory":
        shutil.rmtree(run.root)

    with pytest.raises(NoEventsError) as refused:
        reindex(db, number)

    said = f"job {number} has no events at {run.events}; its result stays as it is; "
    assert str(refused.value) == said + "put its run directory back first"
    assert live[0]["status"] == "done"
    assert projections(db, number) == live


def test_the_memory_trace_is_rebuilt_from_the_attempts_files(
    settings: WorkerSettings, db: Database, tally: Callable[..., int]
) -> None:
    """What was measured beside the engine stands in no event, but in a file of the attempt."""
    number = tally()
    drain(settings)
    live = jobs.get_job(db, number)
    (RunDir(live.run_dir).attempt(1).root / "mem_trace.json").unlink()

    reindex(db, number)

    rebuilt = jobs.get_job(db, number).result
    assert "mem_trace" in live.result
    assert "mem_trace" not in rebuilt
