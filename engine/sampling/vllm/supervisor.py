"""The guardian of a serving process: `python supervisor.py ENGINE_PID STOP_CMD FOLDERS COMMAND…`.

Starts the command in a session of its own, and ends all of it when the engine asks (SIGTERM) or is
gone: the command's group, what left that group, and what a stop command reaches beyond it. Of an
engine that is gone it takes the folders away too (`FOLDERS`, with colons between). It lives
beside the engine because a killed engine cleans nothing up; whoever loses its parent below becomes
its child, so an engine core that was sent away is found too. Only a SIGKILL of this process itself
leaves the server behind, and a supervisor of the engine ends that by its mark. Standard library
only, and no import of ours: it runs by its path.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_LOOK_S = 0.05
GRACE_S = 5.0
"""Seconds a server has to end by itself after SIGTERM: it has nothing to save."""
STOP_S = 60.0
"""Seconds a stop command may take."""
TRACKER_S = 3.0
"""Seconds that Python's resource trackers have after everybody else is gone."""
CANNOT_RUN = 127
_TRACKER = b"multiprocessing.resource_tracker"


def main() -> int:
    """Returns the command's exit status; negative ones, a signal's, as a shell tells them."""
    engine, stop, folders, command = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getppid() != engine:
        return 1
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        print(f"{command[0]} cannot be run: {error.strerror}", flush=True)  # noqa: T201 - the log
        return CANNOT_RUN
    status: int | None = None
    while not asked and os.getppid() == engine:
        status = child.poll()
        # A command that started the server elsewhere returns; its stop command ends it.
        if status is not None and (status != 0 or not stop):
            break
        time.sleep(_LOOK_S)
    gently = os.getppid() == engine
    _end(child, stop, gently=gently)
    if not gently:
        for folder in filter(None, folders.split(os.pathsep)):
            shutil.rmtree(folder, ignore_errors=True)
    if status is None:
        status = child.poll()
    return 1 if status is None else status if status >= 0 else 128 - status


def _end(child: subprocess.Popen[bytes], stop: str, *, gently: bool) -> None:
    """Nothing is left afterwards. Not gently: memory may be short, the server goes at once."""
    if not gently:
        _kill_all(child)
    if stop:
        _run(stop)
    if gently:
        _signal(_descendants(), signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        while _descendants() and time.monotonic() < deadline:
            child.poll()
            _reap(child)
            time.sleep(_LOOK_S)
    _kill_all(child)


def _run(stop: str) -> None:
    try:
        subprocess.run(shlex.split(stop), stdin=subprocess.DEVNULL, timeout=STOP_S, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"the stop command failed: {error}", flush=True)  # noqa: T201 - the log


def _kill_all(child: subprocess.Popen[bytes]) -> None:
    """Again and again until nobody is left: what is being killed may still fork.

    Resource trackers end by themselves once their processes are gone, and take away the shared
    memory and semaphores that those left; a tracker that does not is killed as well. A process of
    some GB takes seconds to be gone on a busy machine, and its trackers wait for that.
    """
    deadline = 0.0
    while found := _descendants():
        others = [pid for pid in found if not _is_tracker(pid)]
        if others:
            deadline = time.monotonic() + TRACKER_S
        _signal(others if time.monotonic() < deadline else found, signal.SIGKILL)
        child.poll()
        _reap(child)
        time.sleep(0.01)


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _is_tracker(pid: int) -> bool:
    try:
        return _TRACKER in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _reap(child: subprocess.Popen[bytes]) -> None:
    """Collect the dead among what was adopted; the child itself is collected by its poll."""
    for pid in _children().get(os.getpid(), []):
        if pid != child.pid:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _descendants() -> list[int]:
    """Everything below this process that still lives."""
    children = _children()
    found: list[int] = []
    waiting = list(children.get(os.getpid(), []))
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def _children() -> dict[int, list[int]]:
    """Children by parent, of this moment; zombies too, until somebody collects them."""
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                # The name in parentheses may hold anything, parentheses too.
                stat = (entry / "stat").read_text("utf-8", errors="replace").rpartition(")")[2]
                found.setdefault(int(stat.split()[1]), []).append(int(entry.name))
    return found


if __name__ == "__main__":
    sys.exit(main())
