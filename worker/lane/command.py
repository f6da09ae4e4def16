"""An operator's command, run with a time limit: no shell, a session of its own, output in a file.

What the command starts and leaves behind goes on: a resident model is exactly that. A command that
does not end in time is killed with its process group. Knows no lane.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_POLL_S = 0.05
_TAIL = 4096


class Outcome(NamedTuple):
    """How a command ended."""

    ok: bool
    detail: str
    """For people: exit status, or that it was too slow, and what it said last."""
    seconds: float
    answered: bool = True
    """False: it could not be run or was killed at its time limit, so `ok` tells nothing of what it
    was to find out.
    """


def run_command(
    command: str, *, limit_s: float, log: Path, meanwhile: Callable[[], None]
) -> Outcome:
    """Run `command` (split like a shell would, run without one) for at most `limit_s` seconds.

    `meanwhile` is called again and again while it runs: a lane keeps its heartbeat with it.
    """
    began = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        position = output.tell()
        output.write(f"$ {command}\n".encode())
        output.flush()
        try:
            child = subprocess.Popen(
                shlex.split(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            return Outcome(False, f"{command!r} cannot be run: {reason}", 0.0, answered=False)
    status = _wait(child, began + limit_s, meanwhile)
    seconds = time.monotonic() - began
    if status is None:
        detail = f"{command!r} did not end within {limit_s:g} s"
        return Outcome(False, detail, seconds, answered=False)
    if status == 0:
        return Outcome(True, f"{command!r} ended after {seconds:.1f} s", seconds)
    said = _last_line(log, position + len(f"$ {command}\n".encode()))
    return Outcome(False, f"{command!r} ended with status {status}{said}", seconds)


def _wait(
    child: subprocess.Popen[bytes], deadline: float, meanwhile: Callable[[], None]
) -> int | None:
    """The exit status; None when it had to be killed."""
    try:
        while child.poll() is None and time.monotonic() < deadline:
            meanwhile()
            time.sleep(_POLL_S)
    finally:
        ended = child.poll()
        if ended is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    return ended


def _last_line(log: Path, position: int) -> str:
    with log.open("rb") as stream:
        stream.seek(max(position, log.stat().st_size - _TAIL))
        lines = stream.read().decode("utf-8", errors="replace").splitlines()
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {said[:200]}" if said else ""
