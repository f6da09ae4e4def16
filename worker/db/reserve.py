"""The reserve: a little room on the database's disk for what must work when that disk is full.

A file that holds nothing. What frees room (a prune) or ends what takes it (a cancel) gives it up
first, for SQLite can neither open nor write a database without some. It is made again when there is
room to spare. Knows no table.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

NAME = ".reserve"
MOST_BYTES = 8 * 2**20
_SHARE = 16
"""Part of a small disk that is kept."""
_SPARE = 4
"""Times its size that must be free before it is made."""


def keep(place: Path) -> None:
    """Make it where it is missing and there is room; nothing happens where it cannot be made."""
    reserve = place / NAME
    with contextlib.suppress(OSError):
        if reserve.exists():
            return
        disk = shutil.disk_usage(place)
        size = min(MOST_BYTES, disk.total // _SHARE)
        if disk.free < _SPARE * size:
            return
        handle = os.open(reserve, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(handle, 0, size)
        except OSError:
            reserve.unlink()
        finally:
            os.close(handle)


def release(place: Path) -> bool:
    """Give its room back; false where there was none."""
    try:
        (place / NAME).unlink()
    except OSError:
        return False
    return True
