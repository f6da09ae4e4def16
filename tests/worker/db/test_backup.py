"""A copy while others write, and the way back."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.deadline import eventually
from worker import access
from worker.db import dialects
from worker.db.backup import BackupError, BackupRefusedError, backup, restore
from worker.db.connection import Database, DatabaseError, open_database, shown
from worker.drain import drain
from worker.lane.machine_lock import drains_of_data
from worker.queue.states import State
from worker.read import jobs
from worker.read.diagnosis import diagnose
from worker.read.lane import lane_status
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
    (tmp_path / "copies").mkdir()
    backup(settings, tmp_path / "copies" / "night.db")
    stop.set()
    writer.join(30)

    lose_database(settings)
    restore(settings, tmp_path / "copies" / "night.db", drains={})
    with open_database(settings) as again:
        queued = jobs.counts(again)[State.QUEUED]
        with again.read() as conn:
            rows = conn.exec_driver_sql("SELECT count(*) FROM job").scalar_one()
            audit = conn.exec_driver_sql("SELECT count(*) FROM job_event").scalar_one()
    assert rows == audit == queued > 0
    assert [path.name for path in (tmp_path / "copies").iterdir()] == ["night.db"]


def test_a_copy_makes_no_folder_of_its_own(
    settings: WorkerSettings, tally: Tally, tmp_path: Path
) -> None:
    """A typing error in the name is refused, not built."""
    tally()

    with pytest.raises(BackupRefusedError, match="name a file in a folder that exists"):
        backup(settings, tmp_path / "copeis" / "night.db")

    assert not (tmp_path / "copeis").exists()


@pytest.mark.parametrize("name", ["a?mode=memory", "a%20b", "a#b", "a b;c&d=e"])
def test_a_path_means_itself_whatever_it_would_mean_in_a_url(name: str, tmp_path: Path) -> None:
    """Database, copy, doctor and the way back go to the one file that the path names."""
    settings = WorkerSettings(data_dir=tmp_path / name, lane="cpu")
    file = tmp_path / name / "nightlane.db"
    open_database(settings).close()
    assert file.stat().st_size > 0

    backup(settings, tmp_path / "copy.db")
    for path in file.parent.glob("nightlane.db*"):
        path.unlink()

    assert restore(settings, tmp_path / "copy.db", drains={}) == file
    assert shown(settings) == str(file)
    assert {one.name: one.detail for one in diagnose(settings)}["database"] == f"{file}, whole"
    assert {path.name for path in tmp_path.iterdir()} == {name, "copy.db"}


def test_a_restored_queue_goes_on(
    settings: WorkerSettings, db: Database, tally: Tally, tmp_path: Path
) -> None:
    """The drain runs what the copy held, WAL and all."""
    first, second = tally(), tally()
    backup(settings, tmp_path / "copy.db")
    drain(settings)
    lose_database(settings)

    restore(settings, tmp_path / "copy.db", drains={})
    report = drain(settings)

    assert [settled.job_id for settled in report.ran] == [first, second]
    with open_database(settings) as again, again.read() as conn:
        assert conn.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"


@pytest.mark.requirement("AP-01")
def test_a_way_back_brings_no_revoked_token_back(
    settings: WorkerSettings, db: Database, tmp_path: Path
) -> None:
    """The copy knows it as a good one; whoever restores makes new ones."""
    secret, made = access.new_token(db, access.Scope.READ, actor="test", now=time.time())
    backup(settings, tmp_path / "copy.db")
    access.revoke(db, made.id, now=time.time())
    lose_database(settings)

    restore(settings, tmp_path / "copy.db", drains={})

    with open_database(settings) as again:
        assert access.holder(again, access.Sort.TOKEN, secret, now=time.time()) is None
        assert access.credentials(again) == []


@pytest.mark.parametrize("left", ["nightlane.db", "nightlane.db-wal"])
def test_nothing_of_a_database_is_overwritten(
    settings: WorkerSettings, db: Database, tmp_path: Path, left: str
) -> None:
    """A journal that stays behind would be applied to the restored file."""
    backup(settings, tmp_path / "copy.db")
    lose_database(settings)
    (settings.data_dir / left).write_bytes(b"alive")

    with pytest.raises(BackupRefusedError, match=rf"{left} exists already; end `cockpit serve`"):
        restore(settings, tmp_path / "copy.db", drains={})

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
        restore(settings, copy, drains={})

    assert not list(settings.data_dir.glob("*nightlane.db*"))


def test_any_other_file_is_no_copy(settings: WorkerSettings, tmp_path: Path) -> None:
    """It is said, and left."""
    (tmp_path / "letter.txt").write_text("dear all" * 2000)

    with pytest.raises(BackupError, match=r"letter.txt is no database of Nightlane: .*; use an"):
        restore(settings, tmp_path / "letter.txt", drains={})


def test_a_database_on_a_server_has_its_own_tool(settings: WorkerSettings, tmp_path: Path) -> None:
    """Named, without the password."""
    server = settings.model_copy(update={"database_url": "postgresql://ada:secret@db/night"})

    with pytest.raises(BackupRefusedError, match="use its own tool: pg_dump") as refusal:
        backup(server, tmp_path / "copy.db")

    assert "secret" not in str(refusal.value)


def test_a_copy_ends_though_somebody_writes_all_the_time(
    settings: WorkerSettings, db: Database, tmp_path: Path
) -> None:
    """A large file, and a writer that never pauses: in steps, SQLite would always begin anew."""
    with db.write_tx() as conn:
        conn.exec_driver_sql("CREATE TABLE ballast AS SELECT zeroblob(20000000) AS weight")
    stop, going = threading.Event(), threading.Event()
    deadline = time.monotonic() + 20

    def write() -> None:
        with closing(dialects.sqlite_module().connect(settings.data_dir / "nightlane.db")) as conn:
            conn.execute("PRAGMA synchronous=OFF")
            while not stop.is_set() and time.monotonic() < deadline:
                conn.execute("INSERT INTO change (topic) VALUES ('lane')")
                conn.commit()
                going.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert going.wait(30)
    size = backup(settings, tmp_path / "copy.db")
    still = writer.is_alive()
    stop.set()
    writer.join(30)

    assert size > 20e6
    assert still


def test_what_a_killed_copy_left_behind_is_swept_up_by_the_next_one(
    settings: WorkerSettings, db: Database, tmp_path: Path
) -> None:
    """And nothing of a copy that is being made."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    for number in (ended.pid, os.getppid()):
        (tmp_path / f".copy.db.{number}.part").write_bytes(b"half a copy")

    backup(settings, tmp_path / "copy.db")

    left = [path.name for path in tmp_path.glob(".copy.db.*")]
    assert left == [f".copy.db.{os.getppid()}.part"]


def test_after_a_way_back_no_job_finds_the_run_directory_of_another(
    settings: WorkerSettings, db: Database, tally: Tally, tmp_path: Path
) -> None:
    """A job that the copy does not know leaves its number and its checkpoints to nobody."""
    backup(settings, tmp_path / "copy.db")
    lost = tally(steps=3)
    drain(settings)
    before = evidence(settings, lost)
    db.close()
    lose_database(settings)

    restore(settings, tmp_path / "copy.db", drains={})
    new = tally(steps=2)
    drain(settings)

    assert new == lost + 1
    result = jobs.get_job(db, new).result
    assert (result["step"], result.get("resumed_from")) == (2, None)
    assert evidence(settings, lost) == before


def test_after_a_way_back_an_attempt_writes_over_no_earlier_one(
    settings: WorkerSettings, db: Database, tally: Tally, tmp_path: Path
) -> None:
    """A job that ran since the copy was made runs again, as its next attempt."""
    number = tally()
    backup(settings, tmp_path / "copy.db")
    drain(settings)
    first = (settings.runs_dir / str(number) / "attempts/001/job.json").read_bytes()
    db.close()
    lose_database(settings)

    restore(settings, tmp_path / "copy.db", drains={})
    drain(settings)

    seen = jobs.get_job(db, number)
    assert (seen.state, seen.attempt) == (State.SUCCEEDED, 2)
    assert (settings.runs_dir / str(number) / "attempts/001/job.json").read_bytes() == first


def test_a_run_directory_under_a_database_put_back_by_hand_moves_aside(
    settings: WorkerSettings, db: Database, tally: Tally, tmp_path: Path
) -> None:
    """The job that has its number now begins anew; the audit says where the old one is."""
    backup(settings, tmp_path / "copy.db")
    lost = tally(steps=3)
    drain(settings)
    db.close()
    lose_database(settings)
    shutil.copyfile(tmp_path / "copy.db", settings.data_dir / "nightlane.db")

    new = tally(steps=2)
    drain(settings)

    assert new == lost
    result = jobs.get_job(db, new).result
    assert (result["step"], result.get("resumed_from")) == (2, None)
    place = settings.runs_dir / f"{lost}.before-1"
    assert (place / "checkpoints/step-000003").is_dir()
    assert str(place) in " ".join(event.why for event in jobs.audit(db, new))


def evidence(settings: WorkerSettings, number: int) -> dict[str, bytes]:
    """Every file of a run directory."""
    root = settings.runs_dir / str(number)
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_no_copy_comes_back_under_a_living_drain(
    settings: WorkerSettings,
    db: Database,
    start_drain: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """It would go on in the file that was moved away, and its job would run a second time."""
    backup(settings, tmp_path / "copy.db")
    living = start_drain("--wait")
    eventually(lambda: lane_status(db, "cpu").held, "the drain's lane")
    lose_database(settings)

    with pytest.raises(BackupRefusedError, match=rf"end it first: kill {living.child.pid}"):
        restore(settings, tmp_path / "copy.db", drains=drains_of_data(settings))

    assert not (settings.data_dir / "nightlane.db").exists()


def test_a_database_lost_under_a_program_is_no_empty_one(
    settings: WorkerSettings, db: Database, tmp_path: Path
) -> None:
    """It says that the file is gone, and the place is free for a backup."""
    backup(settings, tmp_path / "copy.db")
    db.close()
    lose_database(settings)

    with pytest.raises(DatabaseError, match=r"unable to open.*cockpit db restore FILE"):
        jobs.counts(db)
    assert not (settings.data_dir / "nightlane.db").exists()

    restore(settings, tmp_path / "copy.db", drains={})
    assert not any(jobs.counts(db).values())


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ([], "names 0 versions of its schema"),
        (
            ["9999"],
            r"has schema 9999, newer than this program knows \(\d{4}_\w+\); update Nightlane",
        ),
        (
            ["0009"],
            r"has schema 0009, from before the first release \(0010_first_release\), which nothing "
            r"brings forward; export .* begin in a new data directory: set NIGHTLANE_DATA_DIR",
        ),
        (["abc123"], "has schema 'abc123', which is none of Nightlane's"),
    ],
)
def test_a_schema_that_is_not_known_is_said_of_copy_and_database(
    settings: WorkerSettings, db: Database, tmp_path: Path, versions: list[str], words: str
) -> None:
    """In words, and neither is changed."""
    copy = tmp_path / "copy.db"
    backup(settings, copy)
    for path in (copy, settings.data_dir / "nightlane.db"):
        with closing(dialects.sqlite_module().connect(path)) as conn:
            conn.execute("DELETE FROM alembic_version")
            conn.executemany("INSERT INTO alembic_version VALUES (?)", [[one] for one in versions])
            conn.commit()

    with pytest.raises(DatabaseError, match=words):
        open_database(settings)
    db.close()
    lose_database(settings)
    with pytest.raises(BackupError, match=words):
        restore(settings, copy, drains={})


def test_a_name_that_no_file_can_have_is_said(
    settings: WorkerSettings, db: Database, tmp_path: Path
) -> None:
    """Too long for the disk, or a directory."""
    with pytest.raises(BackupError, match="File name too long; choose another name"):
        backup(settings, tmp_path / ("n" * 300))
    lose_database(settings)
    with pytest.raises(BackupError, match="is no file; name one made by: cockpit db backup FILE"):
        restore(settings, tmp_path, drains={})
