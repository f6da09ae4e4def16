"""Strays: what an engine started that left its process group (`setsid`, a double fork).

Four nets, each with its own mesh:

- *group*: a control group of the attempt's own, where this user may make one. Nobody slips through,
  and it outlives the supervisor (`worker.lane.cgroup`).

- *mark*: the engine's environment names its log (`NIGHTLANE_ATTEMPT`), and children inherit it.
  It outlives the supervisor: the next drain finds by it what a killed one left.
- *log*: a process whose output still goes to the attempt's log, environment cleared or not.
- *adoption*: while its engine lives the supervisor is a subreaper, so whoever loses its parent
  becomes its child. It catches all, for as long as the supervisor lives.

Without a control group, what clears its environment, redirects its output and then survives a
`kill -9` of the supervisor slips through; doctor and the next drain say so. Knows no job and no
lane.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from engine.contract.serving import GUARDIAN
from worker.lane import cgroup
from worker.lane.process_id import ProcessIdentity, children, kill_all, members

MARK = "NIGHTLANE_ATTEMPT"
"""Environment variable of an engine: the path of its attempt's log."""

CLEANUP_S = 15.0
"""Seconds for what cleans up after the dead: shared memory, a container's stop command."""
_CLEANERS = (b"multiprocessing.resource_tracker", GUARDIAN.encode())

_PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_LIBC = ctypes.CDLL(None, use_errno=True)


def mark(log: Path) -> str:
    """The value of `NIGHTLANE_ATTEMPT`, whichever way the data directory was named."""
    return str(log.resolve())


def adopt_orphans(yes: bool = True) -> bool:
    """Be the parent of every descendant that loses its own, or no more; returns what was before.

    A process that goes on after its engine would keep orphans of others, and nobody reaps them.
    """
    before = ctypes.c_int()
    _LIBC.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, int(yes))
    return bool(before.value)


def end_attempt(
    engine: ProcessIdentity | None,
    log: Path,
    *,
    own: Collection[ProcessIdentity] | None = None,
    patience_s: float,
) -> None:
    """Kill an engine, its group and its strays, and wait until all of them are gone.

    What cleans up after them goes last: it ends by itself when they are dead, or dies too.

    `own`: children of this process that are none of the engine's; every other one, with all below
    it, was adopted and dies too. None: this process adopted nothing of that engine. Raises
    StillAliveError.
    """

    def found() -> list[ProcessIdentity]:
        group = [] if engine is None else [engine, *members(engine)]
        adopted = [] if own is None else list(_adopted(own))
        held = filter(None, map(ProcessIdentity.of, cgroup.pids(log)))
        found = {*group, *held, *marked(log), *adopted}
        return [process for process in found if process.alive()]

    kill_all(lambda: [one for one in found() if not _cleans_up(one)], patience_s=patience_s)
    deadline = time.monotonic() + CLEANUP_S
    while time.monotonic() < deadline and found():
        time.sleep(0.02)
    kill_all(found, patience_s=patience_s)
    cgroup.remove(log)


def reap(own: Collection[ProcessIdentity]) -> None:
    """Collect the dead among what was adopted; the caller waits for its `own` by itself."""
    for child in children(os.getpid()):
        if child not in own and not child.alive():
            os.waitpid(child.pid, os.WNOHANG)


def marked(log: Path) -> Iterator[ProcessIdentity]:
    """Living processes that carry the mark of this log, or write to it; never this one."""
    entry, target = f"{MARK}={mark(log)}".encode(), log.resolve()
    for folder in _PROC.iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            process = ProcessIdentity.of(int(folder.name))
            if process and (_has(folder, entry) or _writes_to(folder, target)):
                yield process


def _cleans_up(process: ProcessIdentity) -> bool:
    try:
        line = (_PROC / str(process.pid) / "cmdline").read_bytes()
    except OSError:
        return False
    return any(one in line for one in _CLEANERS)


def _adopted(own: Collection[ProcessIdentity]) -> Iterator[ProcessIdentity]:
    """Children of this process that it did not start, and all below them."""
    waiting = [child for child in children(os.getpid()) if child not in own]
    while waiting:
        process = waiting.pop()
        yield process
        waiting += children(process.pid)


def _has(folder: Path, entry: bytes) -> bool:
    try:
        return entry in (folder / "environ").read_bytes().split(b"\0")
    except OSError:  # gone, or another user's
        return False


def _writes_to(folder: Path, log: Path) -> bool:
    for number in ("1", "2"):
        try:
            if (folder / "fd" / number).readlink() == log:
                return True
        except OSError:
            continue
    return False
