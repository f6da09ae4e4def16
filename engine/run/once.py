"""Make once: a folder of the cache that several processes want at the same time.

Each fills a folder of its own beside it and renames that into place; the first one wins, the others
take what stands there. A reader sees all of it or nothing, also after a power cut. What a killed
maker left is removed by the next one. Knows nothing of what is made.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.contract.run_dir import fsync_directory
from engine.run.checkpoint import make_durable


def make_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """`folder`, filled by `make(temporary folder)` unless it stands. What `make` raises is raised,
    and nothing is left of it.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(folder)
    with _own(folder) as temporary:
        make(temporary)
        make_durable(temporary)
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
        fsync_directory(folder.parent)
    return folder


@contextmanager
def _own(folder: Path) -> Iterator[Path]:
    """A new folder beside it, locked while its maker lives, and gone at the end."""
    while (locked := _new(folder)) is None:
        pass  # taken for a leftover, in the moment before it was locked
    temporary, handle = locked
    try:
        yield temporary
    finally:
        os.close(handle)
        shutil.rmtree(temporary, ignore_errors=True)


def _new(folder: Path) -> tuple[Path, int] | None:
    """A folder and its lock; None where somebody removed it meanwhile."""
    temporary = Path(tempfile.mkdtemp(prefix=_prefix(folder), dir=folder.parent))
    try:
        handle = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if temporary.exists():
            return temporary, handle
    except BlockingIOError:
        pass
    os.close(handle)
    return None


def _remove_leftovers(folder: Path) -> None:
    """Folders whose lock nobody holds: their makers are dead."""
    for left in folder.parent.glob(f"{_prefix(folder)}*"):
        try:
            handle = os.open(left, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:  # gone meanwhile
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
        except OSError:  # its maker lives
            continue
        finally:
            os.close(handle)


def _prefix(folder: Path) -> str:
    return f".{folder.name}."
