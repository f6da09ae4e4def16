"""A control group for each attempt, where this user may make one (cgroup v2).

What an engine starts stays in its group whatever it does to its environment, its output and its
parents, and the group outlives the supervisor: the next drain finds in it what a killed one left.
Its path stands beside the attempt's log. A group is delegated to root, in most containers, and to a
user's session under systemd; elsewhere `available` says no, and nothing is made. Knows no job.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

NAME = "cgroup"
"""File beside the attempt's log that holds the group's path."""

PROCS = "cgroup.procs"
"""File of a group that takes and tells its processes."""


def available() -> Path | None:
    """The group in which this process may make others; None where there is none."""
    base = _own()
    if base is None or not os.access(base, os.W_OK | os.X_OK):
        return None
    return base if os.access(base / PROCS, os.W_OK) else None


def make(log: Path) -> Path | None:
    """A new group for the attempt of this log; None where none can be made."""
    base = available()
    if base is None:
        return None
    digest = hashlib.sha256(str(log.resolve()).encode()).hexdigest()[:16]
    group = base / f"nightlane-{digest}"
    try:
        group.mkdir(exist_ok=True)
        log.with_name(NAME).write_text(str(group))
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        return None
    return group


def of(log: Path) -> Path | None:
    """The group that was made for this log, by whatever process; None where none was."""
    try:
        group = Path(log.with_name(NAME).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    # A run directory may come from elsewhere: only a group of ours is ever looked at.
    return group if group.name.startswith("nightlane-") and (group / PROCS).exists() else None


def held(log: Path) -> bool:
    """Whether a group was made for this log, though it may be gone by now."""
    return log.with_name(NAME).exists()


def pids(log: Path) -> Iterator[int]:
    """Processes in the group and in those below it; never this one."""
    group = of(log)
    if group is None:
        return
    for folder, _, _ in os.walk(group):
        with contextlib.suppress(OSError):
            for line in Path(folder, PROCS).read_text().split():
                if int(line) not in (0, os.getpid()):  # 0: outside of this container
                    yield int(line)


def remove(log: Path) -> None:
    """The group of an attempt of which nothing is left."""
    group = of(log)
    if group is not None:
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


def _own() -> Path | None:
    """The directory of this process's own group."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    if own is None:
        return None
    for mount in mounts:
        fields, _, kind = mount.partition(" - ")
        if kind.split(" ", 1)[0] == "cgroup2":
            root, place = fields.split()[3:5]
            below = os.path.relpath(own, root)
            if not below.startswith(".."):
                return Path(place, below)
    return None
