"""A copy while others write, and the way back."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from worker.backup import BackupError, BackupRefusedError, backup, restore
from worker.database import Database, open_database
from worker.drain import drain
from worker.jobs import views
from worker.jobs.states import State
from worker.settings import WorkerSettings

Tally = Callable[..., int]


def lose_database(settings: WorkerSettings) -> None:
    for path in settings.data_dir.glob("nightlane.db*"):
        path.unlink()


def test_a_copy_made_while_jobs_are_enqueued_is_whole(
    settings: WorkerSettings, db: Database, tally: Tally, tmp_path: Path
) -> None:
    """It holds a moment between two transactions, counters and audit included."""
    going = threading.Event()
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            tally()
            going.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert going.wait(30)
    backup(settings, tmp_path / "copies" / "night.db")
    stop.set()
    writer.join(30)

    lose_database(settings)
    restore(settings, tmp_path / "copies" / "night.db")
    with open_database(settings) as again:
        queued = views.counts(again)[State.QUEUED]
        with again.read() as conn:
            rows = conn.exec_driver_sql("SELECT count(*) FROM job").scalar_one()
            audit = conn.exec_driver_sql("SELECT count(*) FROM job_event").scalar_one()
    assert rows == audit == queued > 0
    assert [path.name for path in (tmp_path / "copies").iterdir()] == ["night.db"]


def test_a_restored_queue_goes_on(
    settings: WorkerSettings, db: Database, tally: Tally, tmp_path: Path
) -> None:
    """The drain runs what the copy held, WAL and all."""
    first, second = tally(), tally()
    backup(settings, tmp_path / "copy.db")
    drain(settings)
    lose_database(settings)

    restore(settings, tmp_path / "copy.db")
    report = drain(settings)

    assert [settled.job_id for settled in report.ran] == [first, second]
    with open_database(settings) as again, again.read() as conn:
        assert conn.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"


@pytest.mark.parametrize("left", ["nightlane.db", "nightlane.db-wal"])
def test_nothing_of_a_database_is_overwritten(
    settings: WorkerSettings, db: Database, tmp_path: Path, left: str
) -> None:
    """A journal that stays behind would be applied to the restored file."""
    backup(settings, tmp_path / "copy.db")
    lose_database(settings)
    (settings.data_dir / left).write_bytes(b"alive")

    with pytest.raises(BackupRefusedError, match=rf"{left} exists already; end `cockpit serve`"):
        restore(settings, tmp_path / "copy.db")

    assert (settings.data_dir / left).read_bytes() == b"alive"


def test_a_copy_never_overwrites_a_file(
    settings: WorkerSettings, db: Database, tmp_path: Path
) -> None:
    """Yesterday's copy stays."""
    (tmp_path / "copy.db").write_bytes(b"yesterday")

    with pytest.raises(BackupRefusedError, match="choose another name"):
        backup(settings, tmp_path / "copy.db")

    assert (tmp_path / "copy.db").read_bytes() == b"yesterday"


def test_a_damaged_copy_is_refused(
    settings: WorkerSettings, db: Database, tally: Tally, tmp_path: Path
) -> None:
    """Nothing is put in the database's place."""
    tally()
    copy = tmp_path / "copy.db"
    backup(settings, copy)
    lose_database(settings)
    with copy.open("r+b") as stream:
        stream.seek(3 * 4096)
        stream.write(os.urandom(20 * 4096))

    with pytest.raises(BackupError, match="use another copy"):
        restore(settings, copy)

    assert not list(settings.data_dir.glob("*nightlane.db*"))


def test_any_other_file_is_no_copy(settings: WorkerSettings, tmp_path: Path) -> None:
    """It is said, and left."""
    (tmp_path / "letter.txt").write_text("dear all" * 2000)

    with pytest.raises(BackupError, match=r"letter.txt is no database of Nightlane: .*; use an"):
        restore(settings, tmp_path / "letter.txt")


def test_a_database_on_a_server_has_its_own_tool(settings: WorkerSettings, tmp_path: Path) -> None:
    """Named, without the password."""
    server = settings.model_copy(update={"database_url": "postgresql://ada:secret@db/night"})

    with pytest.raises(BackupRefusedError, match="use its own tool: pg_dump") as refusal:
        backup(server, tmp_path / "copy.db")

    assert "secret" not in str(refusal.value)
