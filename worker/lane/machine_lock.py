"""The machine-wide lock of a lane: a `flock`, so that two data directories never share a lane.

One file a lane, in a directory that all users of the machine share; the kernel lets go of it when
its keeper ends, however. A keeper writes down who it is. Knows no database.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from engine.contract.documents import read_json_object
from engine.contract.errors import NightlaneError
from worker.settings import WorkerSettings

FORK_S = 1.0
"""Seconds in which a child of a killed holder has closed the lock file, also on a busy machine."""

_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class LockDirectoryError(NightlaneError):
    """The machine-wide lock cannot be made."""

    def __init__(self, directory: Path, error: OSError) -> None:
        self.directory = directory
        super().__init__(
            f"{directory} cannot hold the lane lock: {error.strerror}; "
            "set NIGHTLANE_LOCK_DIR to a directory that all users of this machine may write"
        )


class Keeper(NamedTuple):
    """Who keeps a lock."""

    path: Path
    pid: int | None
    """None: it left no readable note."""
    data_dir: str | None

    def __str__(self) -> str:
        if self.pid is None:
            return f"a process that locks {self.path}"
        return f"a drain of {self.data_dir} (process {self.pid})"


@contextmanager
def machine_lock(settings: WorkerSettings) -> Iterator[Keeper | None]:
    """The lock of the settings' lane, ours inside the block; or who keeps it, and it is not ours.

    Raises LockDirectoryError.
    """
    path = _path(settings)
    handle = _open_shared(path)
    try:
        if not _locked(handle):
            yield _keeper(path)
            return
        note = {"pid": os.getpid(), "data_dir": str(settings.data_dir)}
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(note).encode(), 0)
        yield None
    finally:
        os.close(handle)


def keeper_elsewhere(settings: WorkerSettings) -> Keeper | None:
    """Who keeps the settings' lane for another data directory at this moment; makes no file."""
    keeper = _keeper_now(_path(settings))
    return None if keeper is None or _of_data(keeper, settings) else keeper


def drains_of_data(settings: WorkerSettings) -> dict[int, str]:
    """The drains of the settings' data directory that keep a lane of this machine, any lane.

    Process id → the drain in words.
    """
    found = (_keeper_now(path) for path in sorted(settings.lock_dir.glob("*.lock")))
    return {
        keeper.pid: str(keeper)
        for keeper in found
        if keeper and keeper.pid is not None and _of_data(keeper, settings)
    }


def _of_data(keeper: Keeper, settings: WorkerSettings) -> bool:
    if keeper.data_dir is None:
        return False
    return Path(keeper.data_dir).resolve() == settings.data_dir.resolve()


def _path(settings: WorkerSettings) -> Path:
    return settings.lock_dir / f"{settings.lane}.lock"


def _keeper_now(path: Path) -> Keeper | None:
    """Asks for a shared lock and gives it back; whoever wants the lock meanwhile looks again."""
    try:
        handle = os.open(path, _FLAGS)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _keeper(path)
    else:
        return None
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    """Whether the lock is ours. A holder that was killed while it started a child leaves the lock
    to that child for the moment between its fork and its exec.
    """
    deadline = time.monotonic() + FORK_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        else:
            return True


def _open_shared(path: Path) -> int:
    """A file that every user may lock, in a directory that every user may write."""
    directory = path.parent
    try:
        if not directory.is_dir():
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o1777)
        try:
            handle = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            # Without O_CREAT: in a sticky directory the kernel refuses it for another's file.
            return os.open(path, _FLAGS)
        os.fchmod(handle, 0o666)  # whatever the umask says
    except OSError as error:
        raise LockDirectoryError(directory, error) from error
    return handle


def _keeper(path: Path) -> Keeper:
    try:
        note = read_json_object(path)
        return Keeper(path, int(note["pid"]), str(note["data_dir"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Keeper(path, None, None)
