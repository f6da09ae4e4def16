"""The database: opened, migrated forward, and spoken to in read or write transactions.

What SQLite and PostgreSQL do differently stands in `worker.db.dialects`. Knows no table.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from engine.contract.errors import NightlaneError
from engine.contract.paths import broken_link
from worker.db import dialects, reserve
from worker.db.migrations import known_versions, unknown_version, upgrade
from worker.db.numbers import reserve as reserve_numbers
from worker.private import make_private, tighten
from worker.settings import WorkerSettings

_T = TypeVar("_T")
_LOOK_S = 0.02
"""Seconds between two looks of who waits for a write."""


class DatabaseError(NightlaneError):
    """The database cannot be used: what it is, and what to do."""

    def __init__(self, message: str, *, retryable: bool = False, full: bool = False) -> None:
        """`retryable`: the same call may succeed later (locked, full, server away). `full`: its
        disk has no room.
        """
        self.retryable = retryable
        self.full = full
        super().__init__(message)


class Database:
    """Connections to one opened database, safe to share between threads."""

    def __init__(self, engines: dialects.Engines, settings: WorkerSettings) -> None:
        self.settings = settings
        self._engines = engines
        self.dialect = engines.writer.dialect.name
        """`sqlite` or `postgresql`."""
        self._writing = threading.Lock()
        self._watching = threading.Lock()
        self._watch: Connection | None = None
        self._seen: int | None = None

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent look: everything read in it is of one moment. Raises DatabaseError."""
        with self._in_words(), self._engines.reader.connect() as conn, conn.begin():
            dialects.begin_reading(conn)
            yield conn

    @contextmanager
    def write_tx(self, *, patience_s: float | None = None) -> Iterator[Connection]:
        """All or nothing, the only writer from its first statement on, and on the disk at its end.

        `patience_s`: how long it waits for another writer, else `dialects.PATIENCE_S`. Raises
        DatabaseError when the disk is full or another writer does not end; nothing is written then.
        """
        patience = dialects.PATIENCE_S if patience_s is None else patience_s
        writer = self._engines.writer
        with self._turn(patience), self._in_words(), writer.connect() as conn, conn.begin():
            dialects.begin_writing(conn, patience)
            yield conn
            if not dialects.is_open(conn):
                raise self._ended_by_itself()

    @contextmanager
    def _turn(self, patience_s: float) -> Iterator[None]:
        """Of this program's threads one writes at a time. The database's own wait is a blind one:
        whoever comes at the right moment overtakes those that sleep.
        """
        if not self._writing.acquire(timeout=patience_s):
            raise DatabaseError(
                f"{shown(self.settings)}: another thread of this program has kept it locked for "
                f"{patience_s:g} s; {dialects.LOCKED.remedy}",
                retryable=dialects.LOCKED.retryable,
            )
        try:
            yield
        finally:
            self._writing.release()

    def _ended_by_itself(self) -> DatabaseError:
        return DatabaseError(
            f"{shown(self.settings)}: SQLite has ended the transaction by itself; "
            "nothing of this step was written; make room on its disk and try again",
            retryable=True,
            full=True,
        )

    def urgently(self, write: Callable[[], _T]) -> _T:
        """A write that frees room, or ends what takes it: on a full disk, with the reserve.

        Raises DatabaseError.
        """
        return _urgently(self.settings, write)

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except _TROUBLE as error:
            if not _is_trouble(error):
                raise
            raise _in_words(self.settings, error) from error

    def await_write(self, patience_s: float) -> None:
        """Sleep until somebody has written since the call before, and `patience_s` at most.

        For one thread. On PostgreSQL, which does not say, it always sleeps for so long. Raises
        DatabaseError.
        """
        deadline = time.monotonic() + patience_s
        while (left := deadline - time.monotonic()) > 0:
            before, self._seen = self._seen, self.stamp()
            if before is not None and self._seen != before:
                return
            time.sleep(left if self._seen is None else min(left, _LOOK_S))

    def stamp(self) -> int | None:
        """A number that every write changes, whoever made it; it costs less than a look.

        None on PostgreSQL, which does not say. Raises DatabaseError.
        """
        if self.dialect != "sqlite":
            return None
        with self._in_words(), self._watching:
            self._watch = self._watch or self._engines.reader.connect()
            return dialects.writes_seen(self._watch)

    def close(self) -> None:
        """Close every connection that nobody uses; the next use opens new ones."""
        with self._watching:
            if self._watch is not None:
                self._watch.close()
                self._watch = None
        for engine in self._engines:
            engine.dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_database(settings: WorkerSettings, *, urgent: bool = False) -> Database:
    """Open, and create or migrate forward where needed.

    `urgent`: for what frees room on a full disk; the reserve is given up for it. Raises
    DatabaseError when the file is no database, not ours, newer than this program, or the place
    cannot be written.
    """
    if urgent:
        return _urgently(settings, lambda: open_database(settings))
    db = _opened(settings)
    if (place := _place_of(settings)) is not None:
        reserve.keep(place)
    return db


def _urgently(settings: WorkerSettings, act: Callable[[], _T]) -> _T:
    try:
        return act()
    except DatabaseError as error:
        place = _place_of(settings)
        if not error.full or place is None or not reserve.release(place):
            raise
        return act()


def _place_of(settings: WorkerSettings) -> Path | None:
    """The directory of a SQLite file; None for a server's database."""
    url = url_of(settings)
    return Path(url.database).parent if dialects.is_sqlite(url) and url.database else None


def _opened(settings: WorkerSettings) -> Database:
    db = Database(_connect(settings), settings)
    try:
        with db.read() as conn:
            version = _version(conn, settings)
            is_copy = dialects.readers_wait(conn)
        if version != known_versions()[-1] or is_copy:
            _bring_forward(db)
    except BaseException:
        db.close()
        raise
    return db


def url_of(settings: WorkerSettings) -> sa.URL:
    """The database in force. Raises sqlalchemy's ArgumentError for what is no URL.

    A path is no part of a URL's text: `?`, `%` and `#` mean something there.
    """
    if settings.database_url:
        return sa.make_url(settings.database_url)
    return sa.URL.create("sqlite", database=str(settings.data_dir / "nightlane.db"))


def shown(settings: WorkerSettings) -> str:
    """The database's name for people: a path, or a URL without its password."""
    url = url_of(settings)
    is_file = dialects.is_sqlite(url) and url.database
    return str(url.database) if is_file else url.render_as_string()


_TROUBLE = (sa.exc.DatabaseError, sa.exc.InterfaceError)


def _is_trouble(error: sa.exc.DBAPIError) -> bool:
    """The database's own trouble; a broken constraint or a typing error in SQL is our defect."""
    ours = (
        sa.exc.IntegrityError,
        sa.exc.ProgrammingError,
        sa.exc.DataError,
        sa.exc.NotSupportedError,
    )
    return not isinstance(error, ours)


def _in_words(settings: WorkerSettings, error: sa.exc.DBAPIError) -> DatabaseError:
    means = dialects.meaning(error.orig or error)
    words = " ".join(str(error.orig).split())
    text = f"{shown(settings)}: {words}; {means.remedy}"
    return DatabaseError(text, retryable=means.retryable, full=means.full)


def _connect(settings: WorkerSettings) -> dialects.Engines:
    try:
        url = url_of(settings)
    except sa.exc.ArgumentError:
        raise DatabaseError(
            "NIGHTLANE_DATABASE_URL is no database URL; "
            "write postgresql://USER@HOST/NAME, or leave it out for the file in the data directory"
        ) from None
    if not dialects.is_sqlite(url) and not dialects.is_postgresql(url):
        raise DatabaseError(
            f"NIGHTLANE_DATABASE_URL names {url.get_backend_name()}, which is not supported; "
            "use postgresql://USER@HOST/NAME or sqlite:///PATH"
        )
    _make_place(settings, url)
    try:
        return dialects.connect(url)
    except ModuleNotFoundError as error:
        raise DatabaseError(
            f"{shown(settings)} needs {error.name}, which is not installed; "
            "run: pip install 'nightlane[postgres]'"
        ) from error


def _make_place(settings: WorkerSettings, url: sa.URL) -> None:
    try:
        make_private(settings.data_dir)
        if dialects.is_sqlite(url) and url.database:
            Path(url.database).parent.mkdir(parents=True, exist_ok=True)
            for suffix in ("", "-wal", "-shm"):
                tighten(Path(url.database + suffix))
    except OSError as error:
        elsewhere = Path(url.database) if dialects.is_sqlite(url) and url.database else None
        for place in filter(None, (settings.data_dir, elsewhere)):
            if (broken := broken_link(place)) is not None:
                raise DatabaseError(
                    f"{broken}; mount its disk, or set NIGHTLANE_DATA_DIR to a writable place"
                ) from error
        raise DatabaseError(
            f"{settings.data_dir} cannot be made: {error.strerror}; "
            "set NIGHTLANE_DATA_DIR to a writable place"
        ) from error


def _version(conn: Connection, settings: WorkerSettings) -> str | None:
    """The schema's version, or None for an empty database."""
    tables = sa.inspect(conn).get_table_names()
    if "alembic_version" in tables:
        found = conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalars().all()
        if len(found) != 1:
            raise DatabaseError(
                f"{shown(settings)} names {len(found)} versions of its schema; move it away and "
                "bring a backup back with: cockpit db restore FILE"
            )
        return str(found[0])
    if tables:
        raise DatabaseError(
            f"{shown(settings)} holds tables of another program ({tables[0]}, …); "
            "move it away, or set NIGHTLANE_DATA_DIR to another place"
        )
    return None


def _bring_forward(db: Database) -> None:
    """One program migrates, the others wait for it and find the work done."""
    newest = known_versions()[-1]
    with _migration_lock(db.settings):
        if db.dialect == "sqlite":
            with db._in_words(), db._engines.reader.connect() as conn:  # noqa: SLF001 - this module's
                dialects.switch_to_wal(conn)
        with db.write_tx() as conn:
            version = _version(conn, db.settings)
            if version == newest:
                return
            if version is not None and version not in known_versions():
                raise DatabaseError(f"{shown(db.settings)} {unknown_version(version)}")
            upgrade(conn)
            if version is None:
                reserve_numbers(conn, db.settings.runs_dir)


@contextmanager
def _migration_lock(settings: WorkerSettings) -> Iterator[None]:
    make_private(settings.data_dir)
    handle = os.open(settings.data_dir / ".migration.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
