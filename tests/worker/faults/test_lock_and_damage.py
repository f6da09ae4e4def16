"""A write lock that somebody else holds, and a file that was damaged."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.deadline import eventually
from worker.db import dialects
from worker.db.connection import Database, DatabaseError, open_database
from worker.drain import drain
from worker.queue.states import State
from worker.read import jobs
from worker.settings import WorkerSettings

HELD_S = float(os.environ.get("NIGHTLANE_TEST_HELD_LOCK_S", "2"))
"""`make faults-long` holds it for 30 s."""


def test_a_run_outlives_a_write_lock_held_for_longer_than_its_lease(
    settings: WorkerSettings,
    db: Database,
    tally: Callable[..., int],
    start_drain: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Its heartbeat cannot be written, and neither can a takeover: a second drain that comes
    meanwhile is told so, and kills nobody.
    """
    monkeypatch.setenv("NIGHTLANE_LEASE_S", "1")
    monkeypatch.setattr(dialects, "PATIENCE_S", 0.3)
    go = tmp_path / "go"
    number = tally(pace=str(go))
    running = start_drain()
    eventually(lambda: jobs.get_job(db, number).result.get("step"), "the first step", 60)

    with db.write_tx():
        until = time.monotonic() + HELD_S
        while time.monotonic() < until:
            time.sleep(0.1)
        with pytest.raises(DatabaseError, match="database is locked; look at which program"):
            drain(WorkerSettings())
    go.touch()
    code, out, err = running.finish()

    assert (code, out) == (0, f"[({number}, 'succeeded')]\n")
    assert "trying again" in err
    assert "can be written again" in err
    assert jobs.get_job(db, number).attempt == 1


def test_a_lock_that_lasts_is_a_clear_error_for_whoever_enqueues(
    settings: WorkerSettings,
    db: Database,
    tally: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line, retryable, nothing written."""
    monkeypatch.setattr(dialects, "PATIENCE_S", 0.1)
    refused = pytest.raises(DatabaseError, match="end that, and try again")
    with open_database(settings) as other, other.write_tx(), refused as refusal:
        tally()

    assert refusal.value.retryable
    assert jobs.counts(db)[State.QUEUED] == 0


def test_a_damaged_file_is_an_error_with_the_way_back(
    settings: WorkerSettings, db: Database, tally: Callable[..., int]
) -> None:
    """Every door says the same, waiting does not help, and the file stays as evidence."""
    for _ in range(50):
        tally(steps=7)
    db.close()
    path = settings.data_dir / "nightlane.db"
    pages = path.stat().st_size // 4096
    with path.open("r+b") as stream:
        for page in range(2, pages):
            stream.seek(page * 4096)
            stream.write(b"\xff" * 4096)
    evidence = path.read_bytes()

    for door in (lambda: jobs.list_jobs(db), lambda: drain(settings)):
        with pytest.raises(DatabaseError, match="cockpit db restore FILE") as refusal:
            door()
        assert not refusal.value.retryable
        assert "\n" not in str(refusal.value)
    assert path.read_bytes() == evidence
