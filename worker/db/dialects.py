"""What differs between SQLite and PostgreSQL: how to connect, who may write, what an error means.

Both give the same promise, so that the rest is written once: a writing transaction is the only
one from its first statement to its commit, and a reading one sees a single moment.

| | SQLite | PostgreSQL |
|---|---|---|
| one writer | `BEGIN IMMEDIATE` | an advisory lock, held to the end of the transaction |
| one moment | a WAL snapshot | `REPEATABLE READ`, read only |
| survives a power cut | `synchronous=FULL` | `synchronous_commit=on` |

Knows no table.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic_core import PydanticSerializationError, from_json, to_json
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError

_LOG = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""Seconds that a writer waits for another one before it gives up."""

SAFE_SQLITE = (3, 51, 3)
"""Under WAL with several connections, earlier versions can lose pages (the WAL-reset defect)."""

_SHORT_WAIT_S = 0.003
"""Seconds of SQLite's own wait for another program's transaction: looks after 1 and 2 ms."""

_STATEMENTS_KEPT = 512
"""Statements that a connection to SQLite keeps compiled: more than the program has. Once the
driver's 100 are full (a migration alone fills them) two newcomers push each other out at each use.
"""

_ONE_WRITER = 0x6E696768746C616E
"""Key of the advisory lock, the same for every Nightlane on one PostgreSQL database."""

_FORGOTTEN_S = 60
"""Seconds after which PostgreSQL ends a transaction whose program does nothing (SIGSTOP)."""


class Means(NamedTuple):
    """A database's error for people."""

    remedy: str
    retryable: bool
    """Whether the same statement can succeed later without anybody repairing the data."""
    full: bool = False
    """Whether its disk has no room."""


@dataclass(frozen=True)
class _Wording:
    signs: tuple[str, ...]
    means: Means


LOCKED = Means("look at which program keeps it locked, end that, and try again", True)

_WORDINGS = (
    _Wording(("database is locked", "lock timeout", "lock_timeout"), LOCKED),
    _Wording(
        ("is full", "no space left", "disk i/o error", "could not extend file"),
        Means("nothing of this step was written; make room on its disk and try again", True, True),
    ),
    _Wording(
        ("readonly", "read-only", "permission denied"),
        Means("make the file and its directory writable for this user, and try again", True),
    ),
    _Wording(
        ("unable to open",),
        Means(
            "make the file and its directory writable for this user, and try again; "
            "in the place of a lost file comes a backup with: cockpit db restore FILE",
            True,
        ),
    ),
    _Wording(
        ("malformed", "not a database", "corrupt", "invalid page"),
        Means(
            "it is damaged: keep a copy, then bring a backup back with: cockpit db restore FILE",
            False,
        ),
    ),
    _Wording(
        ("connection", "server closed", "terminating", "timeout expired"),
        Means("see that the database server runs and that NIGHTLANE_DATABASE_URL is right", True),
    ),
)


def meaning(error: BaseException) -> Means:
    """What a driver's error asks of a person."""
    text = str(error).lower()
    for wording in _WORDINGS:
        if any(sign in text for sign in wording.signs):
            return wording.means
    return Means("look at its disk and its permissions", True)


class Engines(NamedTuple):
    """Whose transactions keep the promise above."""

    writer: Engine
    reader: Engine


def connect(url: sa.URL) -> Engines:
    """Raises ModuleNotFoundError when PostgreSQL's driver is not installed."""
    if is_sqlite(url):
        engine = _sqlite(url)
        return Engines(engine, engine)
    engine = _postgresql(url)
    looks = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    return Engines(engine, engine.execution_options(**looks))


def is_sqlite(url: sa.URL) -> bool:
    """Whether a URL names a file (or memory)."""
    return url.get_backend_name() == "sqlite"


def is_postgresql(url: sa.URL) -> bool:
    """Whether a URL names a PostgreSQL server, in either spelling."""
    return url.get_backend_name() in {"postgresql", "postgres"}


def _document(value: object) -> str:
    """JSON as a column holds it; several times as quick as Python's own."""
    try:
        return to_json(value, inf_nan_mode="constants").decode()
    except PydanticSerializationError:
        return json.dumps(value)  # half of a surrogate pair, which it writes as an escape


class Unreadable(dict[str, Any]):
    """A column whose JSON cannot be read: empty, so that one broken row stops no page and no queue.

    Who would act on what stands in it asks for this type first.
    """

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why


def _parsed(document: str | bytes) -> Any:
    """The way back, as quick."""
    try:
        return from_json(document)
    except ValueError:
        try:
            return json.loads(document)  # such an escape
        except ValueError as error:
            return Unreadable(str(error))


def readers_wait(conn: Connection) -> bool:
    """Whether this is a SQLite file without WAL, as a backup is: readers wait for the writer."""
    if conn.dialect.name != "sqlite":
        return False
    return str(conn.exec_driver_sql("PRAGMA journal_mode").scalar_one()) != "wal"


def switch_to_wal(conn: Connection) -> None:
    """Of a SQLite file, outside of any transaction; readers wait for no writer from then on."""
    _sqlite_patiently(conn, PATIENCE_S, "PRAGMA journal_mode=WAL")


def writes_seen(conn: Connection) -> int:
    """SQLite's number that changes when another connection has written. For a connection of its
    own, outside of any transaction; it costs less than a look.
    """
    return int(conn.exec_driver_sql("PRAGMA data_version").scalar_one())


def begin_reading(conn: Connection) -> None:
    """The first statement of a transaction that only looks."""
    if conn.dialect.name == "sqlite":
        _sqlite_patiently(conn, PATIENCE_S, "BEGIN")
        _sqlite_patiently(conn, PATIENCE_S, "PRAGMA schema_version")  # it sees this moment


def begin_writing(conn: Connection, patience_s: float) -> None:
    """The first statement of a writing transaction: from here on it is the only one."""
    if conn.dialect.name == "sqlite":
        _sqlite_patiently(conn, patience_s, "BEGIN IMMEDIATE")
    else:
        _postgresql_begin_writing(conn, patience_s)


def is_open(conn: Connection) -> bool:
    """Whether the transaction goes on: SQLite ends one by itself when its disk fails."""
    if conn.dialect.name != "sqlite":
        return True
    driver: Any = conn.connection.dbapi_connection
    return bool(driver.in_transaction)


# --- SQLite ---


def sqlite_module() -> Any:
    """The packaged SQLite where there is one, else Python's own."""
    try:
        return importlib.import_module("pysqlite3.dbapi2")
    except ImportError:
        return importlib.import_module("sqlite3")


def risky_sqlite() -> str | None:
    """The version of SQLite in use when it can lose pages under WAL; None when it is safe."""
    module = sqlite_module()
    version: str = module.sqlite_version
    return version if module.sqlite_version_info < SAFE_SQLITE else None


@cache
def _warn_of_risk() -> None:
    """Once a process."""
    version = risky_sqlite()
    if version is not None:
        _LOG.warning(
            "SQLite %s can lose pages of a database that several programs write; "
            "see: cockpit doctor",
            version,
        )


def _sqlite(url: sa.URL) -> Engine:
    _warn_of_risk()
    module = sqlite_module()
    engine = sa.create_engine(
        url,
        module=module,
        json_serializer=_document,
        json_deserializer=_parsed,
        # The transactions are ours: the module must not begin any by itself.
        connect_args={
            "isolation_level": None,
            "timeout": PATIENCE_S,
            "cached_statements": _STATEMENTS_KEPT,
        },
        # A thread that waits for a connection waits for nothing; the one that was used last has the
        # newest pages in memory.
        max_overflow=-1,
        pool_use_lifo=True,
    )
    name = url.database or ":memory:"
    if name != ":memory:" and not name.startswith("file:"):
        event.listen(engine, "do_connect", _sqlite_as_it_stands(Path(name).absolute()))
    event.listen(engine, "connect", _sqlite_connected)
    return engine


def _sqlite_as_it_stands(file: Path) -> Callable[..., Any]:
    """Made now, where there is none, and by no connection: a database that was lost under a program
    is no empty one, and a backup would find its place taken.
    """
    with contextlib.suppress(OSError):  # the first connection says it in SQLite's words
        if not file.exists():
            file.touch(0o600)

    def connect(dialect: Any, _record: Any, _arguments: Any, options: Any) -> Any:
        return dialect.connect(f"{file.as_uri()}?mode=rw", **options, uri=True)

    return connect


def _sqlite_connected(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    # From here on; what stands above may meet a program that is making the file.
    cursor.execute(f"PRAGMA busy_timeout={round(_SHORT_WAIT_S * 1000)}")
    cursor.close()


def _sqlite_patiently(conn: Connection, patience_s: float, statement: str) -> None:
    """A statement that takes a lock, by the driver itself: SQLAlchemy has no word for it.

    SQLite's own wait grows to 100 ms between two looks, in which a busy program is never found
    between two of its transactions; so its wait is a short one, and begins anew.
    """
    driver: Any = conn.connection.dbapi_connection
    drivers = conn.dialect.loaded_dbapi.Error
    deadline = time.monotonic() + patience_s
    while True:
        try:
            driver.execute(statement).fetchall()
        except drivers as error:
            if meaning(error) is not LOCKED or time.monotonic() >= deadline:
                raise DBAPIError.instance(
                    statement, None, error, drivers, dialect=conn.dialect
                ) from error
        else:
            return


# --- PostgreSQL ---


def _postgresql(url: sa.URL) -> Engine:
    import psycopg  # noqa: F401, PLC0415 - the extra `postgres`; a missing one is said by name

    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        json_serializer=_document,
        json_deserializer=_parsed,
        pool_pre_ping=True,  # a restarted server is no error
        connect_args={"connect_timeout": 10, "application_name": "nightlane"},
    )
    event.listen(engine, "connect", _postgresql_connected)
    return engine


def _postgresql_connected(connection: Any, _record: Any) -> None:
    connection.adapters.register_dumper(str, _nul_free_dumper())
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{_FORGOTTEN_S}s'")
    connection.commit()


@cache
def _nul_free_dumper() -> type[Any]:
    """PostgreSQL's texts hold every character but NUL, and a crashing engine's log may have one."""
    from psycopg.types.string import StrDumper  # noqa: PLC0415 - the extra `postgres`

    class NulFree(StrDumper):
        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\0", "\N{REPLACEMENT CHARACTER}"))

    return NulFree


def _postgresql_begin_writing(conn: Connection, patience_s: float) -> None:
    """One writer at a time, as on SQLite: counters, change ids and claims need no other lock."""
    # READ COMMITTED: each statement behind this one sees what the writer before committed.
    conn.exec_driver_sql(
        f"SET LOCAL lock_timeout = {round(patience_s * 1000)}; "
        f"SELECT pg_advisory_xact_lock({_ONE_WRITER})"
    )
