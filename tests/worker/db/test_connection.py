"""Opening: fresh, behind, foreign, broken, by many at once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlmodel import SQLModel

from worker.db import dialects
from worker.db.connection import Database, DatabaseError, open_database, url_of
from worker.db.migrations import known_versions
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.read import feed, jobs
from worker.settings import WorkerSettings


def _is_comparable(_item: object, name: str | None, *_: object) -> bool:
    """Alembic cannot compare an index with a falling column; that a claim uses it is tested."""
    return name != "ix_job_claim"


@pytest.mark.requirement("JB-01")
def test_the_migrations_build_what_the_models_declare(db: Database) -> None:
    """A column in one place only is an error."""
    with db.write_tx() as conn:
        opts = {"compare_type": True, "include_object": _is_comparable}
        context = MigrationContext.configure(conn, opts=opts)
        assert compare_metadata(context, SQLModel.metadata) == []


def test_each_state_has_its_counter_from_the_start(db: Database) -> None:
    """A state without a counter row would never be counted."""
    with db.read() as conn:
        states = conn.exec_driver_sql("SELECT state FROM state_count").scalars().all()

    assert set(states) == set(State)
    assert jobs.counts(db) == dict.fromkeys(State, 0)


def test_sqlite_runs_in_wal_with_full_sync_and_foreign_keys(db: Database) -> None:
    """What is committed survives a power cut; readers do not wait for the writer."""
    with db.read() as conn:
        found = [
            conn.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]

    assert found == ["wal", 2, 1]


def test_a_reader_waits_for_a_file_that_somebody_keeps_to_himself(
    db: Database, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy is not in WAL, and its readers wait for a writer; when that goes, they read."""
    db.close()
    module = dialects.sqlite_module()
    with closing(module.connect(url_of(settings).database, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode=DELETE")
        other.execute("BEGIN EXCLUSIVE")
        with monkeypatch.context() as changed:
            changed.setattr(dialects, "PATIENCE_S", 0.01)
            with pytest.raises(DatabaseError, match="is locked"):
                jobs.counts(db)
        with ThreadPoolExecutor(1) as pool:
            counting = pool.submit(jobs.counts, db)
            other.execute("ROLLBACK")
            assert not any(counting.result(30).values())


def test_a_failed_write_leaves_nothing(db: Database) -> None:
    """All or nothing, schema changes included."""

    def half_way() -> None:
        with db.write_tx() as conn:
            conn.exec_driver_sql("INSERT INTO change (topic) VALUES ('job')")
            conn.exec_driver_sql("CREATE TABLE extra (id INTEGER)")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        half_way()

    assert feed.last_change_id(db) == 0
    with db.read() as conn:
        assert "extra" not in sa.inspect(conn).get_table_names()


def test_a_database_that_somebody_keeps_locked_is_a_clear_error(
    db: Database, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that names the file, instead of a driver's traceback."""
    monkeypatch.setattr(dialects, "PATIENCE_S", 0.01)
    with open_database(settings) as other, db.write_tx():
        refused = pytest.raises(DatabaseError, match=r"nightlane.db: database is locked; look at")
        with refused, other.write_tx():
            pass


def test_many_processes_can_open_a_fresh_directory_at_once(settings: WorkerSettings) -> None:
    """One migrates, the others wait and find the work done."""
    code = "from worker.settings import WorkerSettings as S; import worker.db.connection as d\n"
    code += "d.open_database(S()).close()"
    openers = [
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]

    assert [opener.communicate(timeout=60)[1] for opener in openers] == [""] * 4


def test_garbage_in_the_databases_place_is_a_clear_error(settings: WorkerSettings) -> None:
    """It is named, and left as it is."""
    path = settings.data_dir / "nightlane.db"
    path.parent.mkdir()
    path.write_bytes(b"this is no database" * 100)

    with pytest.raises(DatabaseError) as refusal:
        open_database(settings)

    assert str(refusal.value) == (
        f"{path}: file is not a database; it is damaged: keep a copy, "
        "then bring a backup back with: cockpit db restore FILE"
    )
    assert path.read_bytes() == b"this is no database" * 100


def test_a_database_of_another_program_is_left_alone(settings: WorkerSettings) -> None:
    """Our tables do not go between somebody else's."""
    path = settings.data_dir / "nightlane.db"
    path.parent.mkdir()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE recipes (id INTEGER)")
    other.close()

    with pytest.raises(DatabaseError, match=r"holds tables of another program \(recipes, …\)"):
        open_database(settings)


def test_a_database_of_a_newer_program_is_refused(settings: WorkerSettings) -> None:
    """An old program would write rows that the new one cannot read."""
    with open_database(settings) as db, db.write_tx() as conn:
        conn.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(DatabaseError, match="has schema 9999, newer than this program knows"):
        open_database(settings)


def test_a_place_that_cannot_be_made_is_a_clear_error(
    settings: WorkerSettings, tmp_path: Path
) -> None:
    """A file stands where the directory should."""
    (tmp_path / "file").touch()
    wrong = settings.model_copy(update={"data_dir": tmp_path / "file" / "data"})

    with pytest.raises(DatabaseError, match=r"cannot be made: .*; set NIGHTLANE_DATA_DIR"):
        open_database(wrong)


def test_migrations_are_numbered_without_a_gap() -> None:
    """The newest version is known without loading Alembic."""
    numbers = [int(version.partition("_")[0]) for version in known_versions()]
    assert known_versions()[0] == "0010_first_release"
    assert numbers == list(range(10, 10 + len(numbers)))


def test_the_worker_needs_no_web(settings: WorkerSettings) -> None:
    """The drain runs on a machine without the cockpit's web stack."""
    code = (
        "import sys, worker.drain, worker.read.jobs\n"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert not set(done.stdout.split()) & {"torch", "fastapi", "starlette", "uvicorn", "alembic"}


def test_threads_that_write_and_read_at_once_get_in_each_others_way_nowhere(db: Database) -> None:
    """More threads than connections that are kept: every job stands once, every look succeeds."""

    def put_and_look(first: int) -> list[int]:
        made = []
        for seed in range(first, first + 6):
            made.append(enqueue(db, "tally", {"seed": seed}, actor="test"))
            assert jobs.get_job(db, made[-1]).state is State.QUEUED
        return made

    with ThreadPoolExecutor(12) as pool:
        made = [
            number for numbers in pool.map(put_and_look, range(0, 120, 10)) for number in numbers
        ]

    assert sorted(made) == list(range(1, 73))
    assert jobs.counts(db)[State.QUEUED] == 72
