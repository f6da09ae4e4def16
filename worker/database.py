"""The database: opened, migrated forward, and spoken to in read or write transactions.

SQLite: WAL, `synchronous=FULL`, every writing transaction `BEGIN IMMEDIATE`; the packaged SQLite
where there is one, because WAL in versions before 3.51.3 can lose pages. Knows no table.
"""

from __future__ import annotations

import fcntl
import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, event

from engine.contract.errors import NightlaneError
from worker.settings import WorkerSettings

BUSY_TIMEOUT_MS = 10_000


class DatabaseError(NightlaneError):
    """The database cannot be used: what it is, and what to do."""


class Database:
    """Connections to one opened database, safe to share between threads."""

    def __init__(self, engine: Engine, settings: WorkerSettings) -> None:
        self.settings = settings
        self._engine = engine

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent look: everything read in it is of one moment. Raises DatabaseError."""
        with self._in_words(), self._engine.begin() as conn:
            yield conn

    @contextmanager
    def write_tx(self) -> Iterator[Connection]:
        """All or nothing; on SQLite it is the only writer from its first statement on.

        Raises DatabaseError when the disk is full or another writer does not end.
        """
        with self._in_words(), self._writer.begin() as conn:
            yield conn

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.OperationalError as error:
            raise DatabaseError(
                f"{_shown(self.settings)}: {error.orig}; look at its disk and permissions, "
                "and whether another program keeps it locked"
            ) from error

    @cached_property
    def _writer(self) -> Engine:
        return self._engine.execution_options(nightlane_write=True)

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_database(settings: WorkerSettings) -> Database:
    """Open, and create or migrate forward where needed.

    Raises DatabaseError when the file is no database, not ours, newer than this program, or the
    place cannot be written.
    """
    db = Database(_connect(settings), settings)
    try:
        if _version(db) != known_versions()[-1]:
            _bring_forward(db)
    except sa.exc.DBAPIError as error:
        db.close()
        raise DatabaseError(
            f"{_shown(settings)}: {error.orig}; "
            "move it away, or set NIGHTLANE_DATA_DIR to another place"
        ) from error
    except BaseException:
        db.close()
        raise
    return db


def migrations_dir() -> Path:
    """The migrations: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def known_versions() -> Sequence[str]:
    """Versions of the schema, oldest first; a migration's file begins with its version."""
    return sorted(
        path.name.partition("_")[0] for path in (migrations_dir() / "versions").glob("[0-9]*.py")
    )


def _connect(settings: WorkerSettings) -> Engine:
    url = sa.make_url(settings.url)
    if url.get_backend_name() != "sqlite":
        return sa.create_engine(url)
    _make_place(settings, url)
    engine = sa.create_engine(
        url,
        module=_sqlite_module(),
        # The transactions are ours: the module must not begin any by itself.
        connect_args={"isolation_level": None, "timeout": BUSY_TIMEOUT_MS / 1000},
    )
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    return engine


def _make_place(settings: WorkerSettings, url: sa.URL) -> None:
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        if url.database:
            Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseError(
            f"{settings.data_dir} cannot be made: {error.strerror}; "
            "set NIGHTLANE_DATA_DIR to a writable place"
        ) from error


def _shown(settings: WorkerSettings) -> str:
    """The database's name for people: a path, or a URL without its password."""
    url = sa.make_url(settings.url)
    is_file = url.get_backend_name() == "sqlite" and url.database
    return str(url.database) if is_file else url.render_as_string()


def _sqlite_module() -> Any:
    try:
        return importlib.import_module("pysqlite3.dbapi2")
    except ImportError:
        return importlib.import_module("sqlite3")


def _on_connect(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _on_begin(conn: Connection) -> None:
    writes = conn.get_execution_options().get("nightlane_write")
    conn.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _version(db: Database) -> str | None:
    """The schema's version, or None for an empty database."""
    with db.read() as conn:
        tables = sa.inspect(conn).get_table_names()
        if "alembic_version" in tables:
            return str(conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one())
    if tables:
        raise DatabaseError(
            f"{_shown(db.settings)} holds tables of another program ({tables[0]}, …); "
            "move it away, or set NIGHTLANE_DATA_DIR to another place"
        )
    return None


def _bring_forward(db: Database) -> None:
    """One program migrates, the others wait for it and find the work done."""
    with _migration_lock(db.settings):
        version = _version(db)
        if version == known_versions()[-1]:
            return
        if version is not None and version not in known_versions():
            raise DatabaseError(
                f"{_shown(db.settings)} has schema {version}, newer than this program knows "
                f"({known_versions()[-1]}); update Nightlane"
            )
        if db._writer.dialect.name == "sqlite":  # noqa: SLF001 - the same module's class
            _switch_to_wal(db)
        with db.write_tx() as conn:
            _upgrade(conn)


def _switch_to_wal(db: Database) -> None:
    """WAL is a property of the file; the switch is impossible inside a transaction."""
    connection = db._engine.raw_connection()  # noqa: SLF001 - the same module's class
    try:
        connection.cursor().execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()


@contextmanager
def _migration_lock(settings: WorkerSettings) -> Iterator[None]:
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    handle = os.open(settings.data_dir / ".migration.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _upgrade(conn: Connection) -> None:
    """Alembic, on our connection: schema and version change in one transaction."""
    from alembic import command  # noqa: PLC0415 - 0.4 s that only a migration pays
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(migrations_dir()).replace("%", "%%"))
    config.attributes["connection"] = conn
    command.upgrade(config, "head")
