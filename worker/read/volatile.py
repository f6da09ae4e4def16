"""Places whose files a restart takes away: what stands there is no place for a night's work.

Knows the usual folders and file systems of Linux; looks at mounts and reads no file.
"""

from __future__ import annotations

from pathlib import Path

import psutil

FOLDERS = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/run"))  # noqa: S108 - to warn of them
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def volatile(place: Path) -> str | None:
    """Why what stands at a place may not outlive a restart; None where it does.

    The place itself need not be there. Raises OSError where a link cannot be followed.
    """
    place = place.resolve()
    for folder in FOLDERS:
        if place.is_relative_to(folder):
            return f"{place} is under {folder}, which is emptied at a restart or by age"
    # Of mounts over one another the deepest counts, and of one place the last.
    mounts = [m for m in psutil.disk_partitions(all=True) if place.is_relative_to(m.mountpoint)]
    deepest = max(mounts, key=lambda mount: len(mount.mountpoint), default=None)
    if deepest is None or deepest.fstype not in _IN_MEMORY:
        return None
    return f"{place} is on {deepest.mountpoint}, which is in memory ({deepest.fstype})"
