"""Which process is meant: (boot id, pid, start time), because pids are used again.

Finds, kills and confirms gone; touches a process only while its identity still matches.
Knows no lane. Linux: reads /proc, signals through pidfd.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from engine.contract.errors import NightlaneError

_PROC = Path("/proc")


class StillAliveError(NightlaneError):
    """A process does not go away: stuck in the kernel on a device, or another user's."""

    retryable = True

    def __init__(self, pids: list[int]) -> None:
        self.pids = pids
        shown = ", ".join(map(str, pids))
        super().__init__(
            f"process {shown} cannot be ended, and the lane stays closed until it is gone; "
            f"look at it with: ps -o user,stat,wchan,args -p {pids[0]}"
        )


@dataclass(frozen=True)
class ProcessIdentity:
    """Names one process for as long as the machine runs, and never another one after it."""

    boot_id: str
    pid: int
    start: int
    """Clock ticks from boot to the start of the process (field 22 of /proc/PID/stat)."""

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process that has this pid now; None when there is none."""
        stat = _stat(pid)
        return None if stat is None else cls(_boot_id(), pid, stat.start)

    @classmethod
    def current(cls) -> Self:
        """This process."""
        found = cls.of(os.getpid())
        assert found is not None, "/proc lists this process"
        return found

    @classmethod
    def parse(cls, text: str) -> Self:
        """Inverse of `str()`."""
        boot_id, pid, start = text.split(":")
        return cls(boot_id, int(pid), int(start))

    def __str__(self) -> str:
        return f"{self.boot_id}:{self.pid}:{self.start}"

    def of_this_boot(self) -> bool:
        """Whether it can be alive at all: nothing outlives a restart of the machine."""
        return self.boot_id == _boot_id()

    def alive(self) -> bool:
        """Whether exactly this process still runs; one that only waits to be reaped does not."""
        stat = _stat(self.pid)
        return (
            self.boot_id == _boot_id()
            and stat is not None
            and stat.start == self.start
            and not stat.dead
        )

    def stopped(self) -> bool:
        """Whether it was put to sleep by a signal and can do nothing until it is woken."""
        stat = _stat(self.pid)
        return self.alive() and stat is not None and stat.state in {"T", "t"}

    def kill(self) -> None:
        """SIGKILL to exactly this process, if it still runs."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            # From here on the handle means one process, so the check cannot go stale.
            if self.alive():
                # Another user's process is not ours to kill; the caller sees it stay.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def kill_and_confirm(process: ProcessIdentity, *, patience_s: float) -> None:
    """Kill a process and wait until it is gone.

    Raises StillAliveError when it is left after `patience_s` seconds.
    """
    kill_all(lambda: [process] if process.alive() else [], patience_s=patience_s)


def kill_all(found: Callable[[], Sequence[ProcessIdentity]], *, patience_s: float) -> None:
    """Kill what `found` finds until it finds nothing: what is being killed may still fork.

    Nothing, twice in a row: what ends during a look may hand on children that it missed.
    Raises StillAliveError when something is left after `patience_s` seconds.
    """
    deadline = time.monotonic() + patience_s
    while left := found() or found():
        for process in left:
            process.kill()
        if time.monotonic() > deadline:
            raise StillAliveError([process.pid for process in left])
        time.sleep(0.02)


def members(leader: ProcessIdentity) -> list[ProcessIdentity]:
    """Living members of the group that `leader` led in a session of its own.

    The number of a group is not given to a new process while the group has members: a process
    with the leader's pid and another start time proves that the group is gone.
    """
    if leader.boot_id != _boot_id():
        return []
    now_there = _stat(leader.pid)
    if now_there is not None and now_there.start != leader.start:
        return []
    return [
        ProcessIdentity(leader.boot_id, stat.pid, stat.start)
        for stat in _all_stats()
        if stat.group == leader.pid == stat.session and stat.start >= leader.start and not stat.dead
    ]


def children(pid: int) -> list[ProcessIdentity]:
    """Processes whose parent is `pid` now, those that wait to be reaped among them."""
    return [
        ProcessIdentity(_boot_id(), stat.pid, stat.start)
        for stat in _all_stats()
        if stat.parent == pid
    ]


@dataclass(frozen=True)
class _Stat:
    pid: int
    state: str
    parent: int
    group: int
    session: int
    start: int

    @property
    def dead(self) -> bool:
        return self.state in {"Z", "X"}


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command stands in parentheses and may hold anything, parentheses too.
    fields = text.rpartition(")")[2].split()
    return _Stat(pid, fields[0], int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def _all_stats() -> Iterator[_Stat]:
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            stat = _stat(int(entry.name))
            if stat is not None:
                yield stat


@cache
def _boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
