"""A job that cannot begin is put aside by name, after a few tries; the others run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import literal_column, update

from engine.contract import registry
from worker.attempt.settlement import TRIES
from worker.attempt.supervisor import RunDirectoryError
from worker.db.connection import Database
from worker.db.tables import job
from worker.drain import drain
from worker.queue.control import retry
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.read import jobs
from worker.read.diagnosis import diagnose
from worker.settings import WorkerSettings

pytestmark = pytest.mark.requirement("JB-08")
Tally = Callable[..., int]


def file_in_place_of_the_run(settings: WorkerSettings, number: int) -> str:
    settings.runs_dir.mkdir(exist_ok=True)
    (settings.runs_dir / str(number)).write_text("a file")
    return f"{settings.runs_dir / str(number)} is a file where a directory must be; move it away"


def file_in_place_of_the_attempts(settings: WorkerSettings, number: int) -> str:
    run = settings.runs_dir / str(number)
    run.mkdir(parents=True)
    (run / "attempts").write_text("a file")
    return f"{run / 'attempts'} is a file where a directory must be"


def link_into_nothing(settings: WorkerSettings, number: int) -> str:
    settings.runs_dir.mkdir(exist_ok=True)
    (settings.runs_dir / str(number)).symlink_to("/nowhere/that/is")
    return f"{settings.runs_dir / str(number)}: "


@pytest.mark.parametrize(
    "spoil", [file_in_place_of_the_run, file_in_place_of_the_attempts, link_into_nothing]
)
def test_the_others_run_in_the_same_drain_and_it_is_given_up_after_a_few_tries(
    settings: WorkerSettings,
    db: Database,
    tally: Tally,
    spoil: Callable[[WorkerSettings, int], str],
) -> None:
    """Said by board and doctor from the first try on."""
    spoiled, behind = tally(), tally()
    said = spoil(settings, spoiled)

    first = drain(settings)

    assert [(one.job_id, one.state) for one in first.ran] == [
        (spoiled, State.QUEUED),
        (behind, State.SUCCEEDED),
    ]
    waits = jobs.get_job(db, spoiled).waits_for
    assert waits is not None
    assert waits.reason == "CANNOT_BEGIN"
    assert waits.detail.startswith(said)
    assert waits.detail.endswith(f"try 1 of {TRIES}")
    assert any(said in found.detail for found in diagnose(settings))

    for _ in range(TRIES + 2):  # orders of a person: each asks again
        drain(settings)

    given_up = jobs.get_job(db, spoiled)
    assert (given_up.state, given_up.cause, given_up.attempt) == (
        State.FAILED,
        "CANNOT_BEGIN",
        TRIES,
    )
    assert given_up.error is not None
    assert given_up.error.startswith(said)
    assert any(f"cockpit retry {spoiled}" in found.detail for found in diagnose(settings))


def test_what_was_mended_runs_after_a_retry(
    settings: WorkerSettings, db: Database, tally: Tally
) -> None:
    """Nothing of the tries is left in its way."""
    number = tally()
    file_in_place_of_the_run(settings, number)
    for _ in range(TRIES):
        drain(settings)
    (settings.runs_dir / str(number)).unlink()

    retry(db, number, actor="test")

    assert [one.state for one in drain(settings).ran] == [State.SUCCEEDED]


def test_where_no_job_can_begin_none_is_given_up(
    settings: WorkerSettings, db: Database, tally: Tally
) -> None:
    """The place of all run directories: the drain says so, as often as it is asked."""
    number = tally()
    settings.runs_dir.write_text("a file")

    for _ in range(TRIES + 1):
        with pytest.raises(RunDirectoryError):
            drain(settings)

    assert jobs.get_job(db, number).state is State.QUEUED


@pytest.mark.parametrize(
    ("column", "value", "cause"),
    [
        ("config", "{", "CONFIG"),
        ("config", "[1]", "CONFIG"),
        ("config", "null", "CONFIG"),
        ("result", "{", None),
        ("kind", "gone", "CONFIG"),
    ],
)
def test_a_damaged_row_stops_neither_the_queue_nor_its_pages(
    settings: WorkerSettings,
    db: Database,
    tally: Tally,
    column: str,
    value: str,
    cause: str | None,
) -> None:
    """It fails by name, or runs where nothing that counts was lost; never with other settings."""
    spoiled, behind = tally(), tally()
    with db.write_tx() as conn:
        broken: dict[str, Any] = {column: literal_column(f"'{value}'")}
        conn.execute(update(job).where(job.c.id == spoiled).values(broken))

    shown = [one.id for one in jobs.list_jobs(db)]
    ran = {one.job_id: one for one in drain(settings).ran}

    assert shown == [behind, spoiled]
    assert ran[spoiled].cause == cause
    assert ran[behind].state is State.SUCCEEDED


def test_a_kind_that_breaks_in_its_own_check_is_put_aside_too(
    settings: WorkerSettings,
    db: Database,
    tally: Tally,
    kinds_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An operator's kind: its exception is the job's, not the queue's."""
    broken, behind = tally(seed=7), tally()
    kind = registry.get_kind("tally")

    def check(config: Any) -> list[Any]:
        if config.seed == 7:
            raise KeyError("nobody thought of this")
        return []

    monkeypatch.setitem(kind.__dict__, "check", check)

    ran = {one.job_id: one for one in drain(settings).ran}

    assert ran[broken].state is State.QUEUED
    waits = jobs.get_job(db, broken).waits_for
    assert waits is not None
    assert "KeyError: 'nobody thought of this'" in waits.detail
    assert ran[behind].state is State.SUCCEEDED


def test_a_base_folder_that_is_gone_fails_by_name(
    settings: WorkerSettings, db: Database, tally: Tally, tmp_path: Path
) -> None:
    """What the job reads is no place of the machine's: no second try helps."""
    data = tmp_path / "rows.txt"
    data.write_text("1")
    number = enqueue(db, "tally", {"reads": str(data)}, actor="test")
    behind = tally()
    data.unlink()

    ran = {one.job_id: one for one in drain(settings).ran}

    assert (ran[number].state, ran[number].cause) == (State.FAILED, "CONFIG")
    assert str(data) in str(ran[number].error)
    assert ran[behind].state is State.SUCCEEDED
