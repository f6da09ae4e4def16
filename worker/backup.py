"""A copy of the database while it is in use, and the way back.

The copy is one file, whole at every moment: written beside its name, checked, renamed. A way back
goes to an empty place only, so nothing living is overwritten. Knows no table; the run directories
are files and are copied like files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from engine.contract.errors import NightlaneError
from engine.contract.run_dir import fsync_directory
from worker import dialects
from worker.database import known_versions
from worker.settings import WorkerSettings

_PAGES = 4096
"""Pages of one step of the copy; writers get their turn between two steps."""


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
    with _written_whole(target) as part, closing(_open(source)) as here:
        with closing(_open(part)) as there:
            here.backup(there, pages=_PAGES)
            there.execute("PRAGMA journal_mode=DELETE")  # one file, without a -wal beside it
        _check(part)
    return target.stat().st_size


def restore(settings: WorkerSettings, source: Path) -> Path:
    """Put a copy where the database was; returns its path.

    Raises BackupRefusedError while anything of the old database is there, BackupError when the
    copy is damaged or newer than this program.
    """
    target = _file(settings, "pg_restore --dbname=URL FILE")
    for suffix in ("", "-wal", "-shm", "-journal"):
        # A journal left beside it would be applied to the restored file and destroy it.
        _refuse(
            target.with_name(target.name + suffix),
            "end `cockpit serve` and the drain, move it away together with its -wal and -shm "
            "files, then restore",
        )
    if not source.is_file():
        raise BackupError(f"{source} does not exist; name a file made by: cockpit db backup FILE")
    _check(source)
    with _written_whole(target) as part:
        shutil.copyfile(source, part)
    return target


def _file(settings: WorkerSettings, instead: str) -> Path:
    url = sa.make_url(settings.url)
    if not dialects.is_sqlite(url) or not url.database:
        raise BackupRefusedError(
            f"the database is on a server ({url.render_as_string()}); use its own tool: {instead}"
        )
    return Path(url.database)


def _refuse(path: Path, remedy: str) -> None:
    if path.exists():
        raise BackupRefusedError(f"{path} exists already; {remedy}")


@contextmanager
def _written_whole(target: Path) -> Iterator[Path]:
    """A name beside `target` to write to; on success it becomes `target`, else it vanishes."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
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


def _check(path: Path) -> None:
    """Raises BackupError unless the file is a whole database of ours."""
    remedy = "use another copy"
    try:
        with closing(_open(path, "?mode=ro&immutable=1")) as conn:
            found = conn.execute("PRAGMA integrity_check(1)").fetchone()[0]
            version = conn.execute("SELECT version_num FROM alembic_version").fetchone()[0]
    except _module().Error as error:
        raise BackupError(f"{path} is no database of Nightlane: {error}; {remedy}") from error
    if found != "ok":
        raise BackupError(f"{path} is damaged: {found}; {remedy}")
    if version not in known_versions():
        raise BackupError(
            f"{path} has schema {version}, newer than this program knows "
            f"({known_versions()[-1]}); update Nightlane"
        )


def _open(path: Path, options: str = "") -> Any:
    return _module().connect(f"{path.absolute().as_uri()}{options}", uri=True)


def _module() -> Any:
    return dialects.sqlite_module()
