"""The arbiter (hand-over of the lane): the resident model goes before a job, and comes back after.

A model that lives on the lane while nothing runs (a chat server) is stopped by the operator's
command and started again by another. That it is owed a start is written down before it is stopped,
so whoever holds the lane next pays the debt, whatever became of this process. A stop counts when
the memory came back, a start when the model answers.
Knows no job and no policy: armed or not, a debt is paid.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, select, update

from worker.db import decisions
from worker.db.connection import Database
from worker.db.tables import resident
from worker.lane.lease import Lease
from worker.queue.deferral import Deferral, Reason

RETURNED_SHARE = 0.8
"""Of what an earlier stop gave back, so much must come back for a stop to count as one."""
STEADY_S = 1.0
"""Memory that did not grow for so long has come back as far as it will."""
NOISE_GB = 0.3
"""Less than this comes and goes with other work on the box."""
_LOOK_S = 0.1
_POLL_S = 0.05
_TAIL = 4096

Free = Callable[[], float | None]
"""Free memory in GB."""


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


class Arbiter:
    """One drain's hand on the resident model. Every verb needs the lane."""

    def __init__(self, lease: Lease, free_gb: Free, *, actor: str) -> None:
        self._lease = lease
        self._db = lease.db
        self._settings = lease.db.settings
        self._free_gb = free_gb
        self._actor = actor
        self._log = self._settings.data_dir / "logs" / "resident.log"

    def free(self) -> Deferral | None:
        """Stop the resident model and wait for its memory. A deferral when it does not go.

        Nothing is done when there is none, or when it is stopped already.
        """
        command = self._settings.resident_stop_cmd
        if command is None or owed(self._db) or not self._lives():
            return None
        known, before = returns_gb(self._db), self._free_gb()
        self._owe()
        outcome = self._run(command)
        if not outcome.ok:
            return self._stuck(outcome.detail, {"seconds": round(outcome.seconds, 1)})
        returned = self._wait_for_memory(before, known)
        numbers = {"returned_gb": _rounded(returned), "known_gb": _rounded(known)}
        if known and known > NOISE_GB and returned is not None and returned < known / 2:
            detail = (
                f"the resident model was stopped, but only {returned:.1f} GB of "
                f"{known:.1f} GB came back within {self._settings.memory_return_s:g} s"
            )
            return self._stuck(detail, numbers)
        self._note("resident-stopped", outcome.detail, numbers, returned_gb=returned)
        return None

    def restore(self) -> bool:
        """Start the resident model if it is owed a start; whether it is up, or nothing was owed.

        A start that fails stays owed: the next drain tries it again.
        """
        if not owed(self._db):
            return True
        outcome = self._start()
        if outcome.ok:
            self._note("resident-restored", outcome.detail, {"seconds": round(outcome.seconds, 1)})
            self._set(owed=False, since=None, by=None)
            return True
        detail = f"{outcome.detail}; it stays stopped until the next drain tries again"
        self._note("resident-not-restored", detail, {"seconds": round(outcome.seconds, 1)})
        return False

    def await_memory(self, before_gb: float | None) -> None:
        """After a run: wait until the memory that was free before it is free again."""
        if self._settings.resident_stop_cmd is None or before_gb is None:
            return
        deadline = time.monotonic() + self._settings.memory_return_s
        while (free := self._free_gb()) is not None and free < before_gb - NOISE_GB:
            if time.monotonic() > deadline:
                detail = f"{before_gb - free:.1f} GB did not come back after the run"
                numbers = {"before_gb": _rounded(before_gb), "free_gb": _rounded(free)}
                self._note("memory-missing", detail, numbers)
                return
            self._meanwhile()

    # --- the commands ---

    def _start(self) -> Outcome:
        """The start command, then the check until it succeeds; both within the time limit."""
        command, check = self._settings.resident_start_cmd, self._settings.resident_check_cmd
        if command is None:
            return Outcome(False, "NIGHTLANE_RESIDENT_START_CMD is not set", 0.0)
        began = time.monotonic()
        outcome = self._run(command)
        while outcome.ok and check is not None:
            up = self._run(check)
            seconds = time.monotonic() - began
            if up.ok:
                return Outcome(True, f"it is up after {seconds:.1f} s", seconds)
            if seconds > self._settings.resident_timeout_s:
                return Outcome(False, f"it was started but is not up: {up.detail}", seconds)
            self._meanwhile()
        return outcome

    def _lives(self) -> bool:
        """Whether it is up; without an answer of the check command it is taken to be."""
        check = self._settings.resident_check_cmd
        if check is None:
            return True
        outcome = self._run(check)
        return outcome.ok or not outcome.answered

    def _run(self, command: str) -> Outcome:
        limit_s = self._settings.resident_timeout_s
        return run_command(command, limit_s=limit_s, log=self._log, meanwhile=self._lease.keep)

    def _meanwhile(self) -> None:
        self._lease.keep()
        time.sleep(_LOOK_S)

    def _wait_for_memory(self, before: float | None, known: float | None) -> float | None:
        """What came back: as much as an earlier stop gave, or all that comes until it is steady."""
        deadline = time.monotonic() + self._settings.memory_return_s
        best, since = self._free_gb(), time.monotonic()
        if before is None or best is None:
            return None
        while time.monotonic() < deadline:
            if known and best - before >= RETURNED_SHARE * known:
                break
            if not known and time.monotonic() - since >= STEADY_S:
                break
            self._meanwhile()
            free = self._free_gb()
            if free is not None and free > best + NOISE_GB / 3:
                best, since = free, time.monotonic()
        return max(0.0, best - before)

    # --- what is written down ---

    def _owe(self) -> None:
        """From here on it must be started again, whatever happens next."""
        self._set(owed=True, since=time.time(), by=self._actor)

    def _stuck(self, detail: str, numbers: dict[str, Any]) -> Deferral:
        self._note("resident-stuck", detail, numbers)
        words = f"{detail}; look at {self._log}"
        return Deferral(Reason.RESIDENT_STUCK, words)

    def _set(self, **values: Any) -> None:
        with self._db.write_tx() as conn:
            _upsert(conn, self._lease.lane, values)

    def _note(
        self, what: str, detail: str, numbers: dict[str, Any], *, returned_gb: float | None = None
    ) -> None:
        with self._db.write_tx() as conn:
            if returned_gb is not None:
                _upsert(conn, self._lease.lane, {"returned_gb": returned_gb})
            decisions.record(
                conn, self._lease.lane, what, detail, actor=self._actor, numbers=numbers
            )


def owed(db: Database) -> bool:
    """Whether the lane's resident model waits to be started again."""
    with db.read() as conn:
        statement = select(resident.c.owed).where(resident.c.lane == db.settings.lane)
        return bool(conn.execute(statement).scalar_one_or_none())


def returns_gb(db: Database) -> float | None:
    """Memory that stopping it gives back: 0 when nothing lives there, None = never measured."""
    if db.settings.resident_stop_cmd is None or owed(db):
        return 0.0
    with db.read() as conn:
        statement = select(resident.c.returned_gb).where(resident.c.lane == db.settings.lane)
        return conn.execute(statement).scalar_one_or_none()


def _upsert(conn: Connection, lane: str, values: dict[str, Any]) -> None:
    changed = conn.execute(update(resident).where(resident.c.lane == lane).values(**values))
    if changed.rowcount == 0:
        conn.execute(insert(resident).values(**{"lane": lane, "owed": False} | values))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


# --- an operator's command ---


def run_command(
    command: str, *, limit_s: float, log: Path, meanwhile: Callable[[], None]
) -> Outcome:
    """Run `command` (split like a shell would, run without one) for at most `limit_s` seconds.

    In a session of its own, with its output in a file. What it starts and leaves behind goes on: a
    resident model is exactly that. One that does not end in time is killed with its process group.
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
