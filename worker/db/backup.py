"""A copy of the database while it is in use, and the way back.

The copy is one file, whole at every moment: written beside its name, checked, renamed. A way back
goes to an empty place only, so nothing living is overwritten. The run directories are files and
are copied like files; what stands there when a copy comes back keeps its numbers.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil

from engine.contract.errors import NightlaneError
from engine.contract.run_dir import fsync_directory
from worker.db import dialects
from worker.db.connection import url_of
from worker.db.migrations import known_versions, unknown_version
from worker.db.numbers import reserve_in_copy
from worker.settings import WorkerSettings


class BackupError(NightlaneError):
    """No copy was made, and nothing was changed."""


class BackupRefusedError(BackupError):
    """Something stands where the copy or the database should go."""

    exit_code = 4


def backup(settings: WorkerSettings, target: Path) -> int:
    """Copy the database to `target` while others write to it. Returns the copy's size in bytes.

    Raises BackupError, BackupRefusedError.
    """
    source = _file(settings, "pg_dump --format=custom --file=FILE URL")
    if not source.exists():
        raise BackupError(f"{source} does not exist; nothing was enqueued here yet")
    _refuse(target, "choose another name")
    if not target.parent.is_dir():
        raise BackupRefusedError(
            f"{target.parent} is no folder; name a file in a folder that exists"
        )
    with _written_whole(target) as part, closing(_open(source)) as here:
        with closing(_open(part)) as there:
            # In one step: a reader under WAL keeps no writer waiting, and a copy in several steps
            # begins anew whenever somebody has written between two of them.
            here.backup(there)
            there.execute("PRAGMA journal_mode=DELETE")  # one file, without a -wal beside it
        _check(part)
    return target.stat().st_size


def restore(settings: WorkerSettings, source: Path, *, drains: Mapping[int, str]) -> Path:
    """Put a copy where the database was; returns its path.

    `drains`: those that run on this data directory, process id → in words. Raises
    BackupRefusedError while there is one, or while anything of the old database is there,
    BackupError when the copy is damaged or newer than this program.
    """
    target = _file(settings, "pg_restore --dbname=URL FILE")
    for pid, drain in drains.items():
        # It goes on in the file that was moved away, and its jobs would run a second time here.
        raise BackupRefusedError(f"{drain} still runs; end it first: kill {pid}")
    for suffix in ("", "-wal", "-shm", "-journal"):
        # A journal left beside it would be applied to the restored file and destroy it.
        _refuse(
            target.with_name(target.name + suffix),
            "end `cockpit serve` and the drain, move it away together with its -wal and -shm "
            "files, then restore",
        )
    if not _stands(source):
        raise BackupError(f"{source} does not exist; name a file made by: cockpit db backup FILE")
    if not source.is_file():
        raise BackupError(f"{source} is no file; name one made by: cockpit db backup FILE")
    _check(source)
    with _written_whole(target) as part:
        shutil.copyfile(source, part)
        with closing(_open(part)) as copy:
            reserve_in_copy(copy, settings.runs_dir)
            _forget_credentials(copy)
    return target


def _forget_credentials(copy: Any) -> None:
    """A token that was revoked since the copy was made must not open the door again."""
    tables = copy.execute("SELECT name FROM sqlite_master WHERE name = 'door_token'").fetchall()
    if tables:  # an older version's copy has none
        copy.execute("DELETE FROM door_token")
        copy.commit()


def _file(settings: WorkerSettings, instead: str) -> Path:
    url = url_of(settings)
    if not dialects.is_sqlite(url) or not url.database:
        raise BackupRefusedError(
            f"the database is on a server ({url.render_as_string()}); use its own tool: {instead}"
        )
    return Path(url.database)


def _refuse(path: Path, remedy: str) -> None:
    if _stands(path):
        raise BackupRefusedError(f"{path} exists already; {remedy}")


def _stands(path: Path) -> bool:
    try:
        return path.is_symlink() or path.exists()  # also one that leads nowhere yet
    except OSError as error:
        raise BackupError(f"{path}: {error.strerror}; choose another name") from error


@contextmanager
def _written_whole(target: Path) -> Iterator[Path]:
    """A name beside `target` to write to; on success it becomes `target`, else it vanishes."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        part.touch(0o600)
        yield part
        with part.open("rb") as stream:
            os.fsync(stream.fileno())
        part.rename(target)
        fsync_directory(target.parent)
    except OSError as error:
        raise BackupError(f"{target}: {error.strerror}; nothing was written there") from error
    except _module().Error as error:
        raise BackupError(f"{target}: {error}; nothing was written there") from error
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            part.with_name(part.name + suffix).unlink(missing_ok=True)


def _sweep(target: Path) -> None:
    """What a copy of the same name left behind when it was killed."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.part*"):
        number = left.name.removeprefix(f".{target.name}.").partition(".")[0]
        if number.isdecimal() and not psutil.pid_exists(int(number)):
            left.unlink()


def _check(path: Path) -> None:
    """Raises BackupError unless the file is a whole database of ours."""
    remedy = "use another copy"
    try:
        with closing(_open(path, "?mode=ro&immutable=1")) as conn:
            found = conn.execute("PRAGMA integrity_check(1)").fetchone()[0]
            versions = conn.execute("SELECT version_num FROM alembic_version").fetchall()
    except _module().Error as error:
        raise BackupError(f"{path} is no database of Nightlane: {error}; {remedy}") from error
    if found != "ok":
        raise BackupError(f"{path} is damaged: {found}; {remedy}")
    if len(versions) != 1:
        raise BackupError(f"{path} names {len(versions)} versions of its schema; {remedy}")
    if versions[0][0] not in known_versions():
        raise BackupError(f"{path} {unknown_version(str(versions[0][0]))}")


def _open(path: Path, options: str = "") -> Any:
    return _module().connect(f"{path.absolute().as_uri()}{options}", uri=True)


def _module() -> Any:
    return dialects.sqlite_module()
