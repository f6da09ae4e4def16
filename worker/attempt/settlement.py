"""How an attempt ended: from exit status and sentinel to the job's next state.

A pure decision; writes nothing and knows no process.
"""

from __future__ import annotations

import errno
import signal
from dataclasses import dataclass
from typing import Any

from engine.contract.ends import SERVER_LOST
from engine.contract.run_dir import Abort, AbortReason, ExitCode
from worker.queue.deferral import Deferral, Reason
from worker.queue.states import State

MEMORY_CHANCES = 1
"""How often a job stopped for memory is queued again."""

DISK_PAUSE_S = 300.0
"""Seconds until a job that found the disk full is tried again."""

TRIES = 3
"""How often in a row a job may fail to begin before it is given up."""

BEGIN_PAUSE_S = 300.0
"""Seconds until a job that could not begin is tried again."""

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_LATER = frozenset({AbortReason.BUDGET, AbortReason.WINDOW})
_RESUMED = frozenset({AbortReason.REQUEUE, AbortReason.SIGTERM, AbortReason.SILENT, *_LATER})

SERVER_PAUSE_S, SERVER_PAUSE_MOST_S = 60.0, 3600.0
"""Seconds until a job that lost its server is tried again: twice as many each time, at most so."""

MEMORY, LOST, SILENT, DISK_FULL = "MEMORY", "LOST", "SILENT", "DISK_FULL"
CANNOT_BEGIN = "CANNOT_BEGIN"


@dataclass(frozen=True)
class Ending:
    """What is known when an attempt is over."""

    exit_status: int
    """The engine's exit code; negative: the signal that ended it."""
    abort: Abort | None
    """The sentinel, if one stands."""
    finished: dict[str, Any] | None
    """The attempt's `finished` event."""
    last_words: str
    """The last line of engine.log."""
    oom_deferred: int = 0
    """How often this job was stopped for memory before."""
    overdue: bool = False
    """The supervisor killed it, because its checkpoint did not come in time."""
    guarded: bool = False
    """What guards the memory where it ran killed it at once, without waiting for a checkpoint."""
    make_smaller: str = "make it smaller"
    """What helps a job of its kind that needs too much memory."""
    full_disk: str = ""
    """What is left on the disk of its run directory, where that is next to nothing."""
    servers_lost: int = 0
    """How many attempts in a row before this one lost their server."""
    max_attempts: int = TRIES
    """Attempts that a job may lose to a dead server."""


@dataclass(frozen=True)
class Verdict:
    """The transition to make."""

    to: State
    why: str
    """For the audit."""
    cause: str | None = None
    error: str | None = None
    oom: bool = False
    """Counts as stopped for memory."""
    rescue: bool = False
    """Counts as lost to a dead supervisor or machine."""
    interrupted: str | None = None
    """What ended the attempt though the job goes on, in one word: BUDGET, SILENT, LOST."""
    ended: str = ""
    """Of `why`, how it ended without being asked: what stays true whatever becomes of the job."""
    later: bool = False
    """Not for the drain that put it back: budget or window ended for now."""
    deferral: Deferral | None = None
    """What it must wait for before anybody may claim it again."""


def settle(ending: Ending, now: float = 0.0) -> Verdict:
    """The job's next state; `now` in Unix seconds, for one that waits for a disk or a server."""
    if ending.exit_status == ExitCode.ABORTED or ending.overdue or ending.guarded:
        return _stopped(ending, now)
    if ending.exit_status == ExitCode.DONE:
        return _done(ending)
    if ending.exit_status == ExitCode.DECLINED:
        return _declined(ending)
    if ending.exit_status == ExitCode.CONFIG:
        words = ending.last_words or "the engine refused its config; see engine.log"
        return Verdict(State.FAILED, "the engine refused its config", "CONFIG", words)
    if ending.full_disk:
        return _out_of_room(ending, now)
    return _crashed(ending)


def settle_lost(rescues: int, max_attempts: int) -> Verdict:
    """The supervisor or the machine died; `rescues` attempts were lost that way before."""
    why = "its supervisor or the machine died"
    if rescues + 1 >= max_attempts:
        error = (
            f"{rescues + 1} attempts were lost to a dead supervisor or machine; "
            "look at the end of each attempt's engine.log, then enqueue it again"
        )
        return Verdict(State.FAILED, why, LOST, error, rescue=True)
    resumes = f"{why}; to resume from its last checkpoint"
    return Verdict(State.QUEUED, resumes, rescue=True, interrupted=LOST, ended=why)


def settle_unreadable(error: Exception) -> Verdict:
    """The files of the attempt cannot be read: what came of it stays unknown."""
    return Verdict(State.FAILED, "its files cannot be read", "NO_RESULT", str(error))


def full_error(error: OSError) -> bool:
    """Whether it says that a disk, or a user's share of it, is full."""
    return error.errno in _NO_ROOM


def no_run_directory(error: OSError, now: float) -> Verdict:
    """The attempt's directory could not be made; a full disk is looked at again after a while."""
    why = f"no run directory: {error.strerror}"
    if not full_error(error):
        return Verdict(State.QUEUED, why, later=True, ended=why)
    detail = "there is no room for its run directory; make room, or wait for the next look"
    full = Deferral(Reason.DISK_FULL, detail, now + DISK_PAUSE_S)
    return Verdict(State.QUEUED, why, later=True, deferral=full, ended=why)


def cannot_begin(what: str, before: int, now: float) -> Verdict:
    """Something of this job alone is in its way; `before`: how often in a row it was already."""
    why = f"it could not begin: {what}"
    if before + 1 >= TRIES:
        error = f"{what}; it was tried {before + 1} times; mend that, then try the job again"
        return Verdict(
            State.FAILED, f"it could not begin, {TRIES} times in a row", CANNOT_BEGIN, error
        )
    detail = f"{what}; try {before + 1} of {TRIES}"
    again = Deferral(Reason.CANNOT_BEGIN, detail, now + BEGIN_PAUSE_S)
    return Verdict(
        State.QUEUED, why, interrupted=CANNOT_BEGIN, later=True, deferral=again, ended=why
    )


def _out_of_room(ending: Ending, now: float) -> Verdict:
    """An engine on a full disk can write neither a checkpoint nor why it died."""
    why = f"the engine crashed ({_how(ending)}) on a full disk: {ending.full_disk}"
    detail = f"the disk of its run directory is full ({ending.full_disk}); make room"
    full = Deferral(Reason.DISK_FULL, detail, now + DISK_PAUSE_S)
    return Verdict(
        State.QUEUED,
        f"{why}; to resume",
        interrupted=DISK_FULL,
        later=True,
        deferral=full,
        ended=why,
    )


def _done(ending: Ending) -> Verdict:
    if ending.finished and ending.finished.get("status") == "done":
        return Verdict(State.SUCCEEDED, "the engine finished")
    error = "the engine exited 0 without a result; its kind's entry must return one"
    return Verdict(State.FAILED, "no finished event", "NO_RESULT", error)


def _declined(ending: Ending) -> Verdict:
    cause, error = _named(ending)
    cause, error = cause or "DECLINED", error or ending.last_words or "the engine declined the work"
    return Verdict(State.FAILED, f"the engine declined: {cause}", cause, error)


def _named(ending: Ending) -> tuple[str, str]:
    """The cause that the engine itself named for its end, and its words; empty without one."""
    result = (ending.finished or {}).get("result", {})
    return str(result.get("cause") or ""), str(result.get("error") or "")


def _server_lost(ending: Ending, words: str, now: float) -> Verdict:
    """The engine ended by itself at its last whole step: it has nobody to ask."""
    why = f"its server was lost: {words}"
    if ending.servers_lost + 1 >= ending.max_attempts:
        error = (
            f"{words}; {ending.servers_lost + 1} attempts in a row lost their server; see that it "
            "answers, then try the job again"
        )
        return Verdict(State.FAILED, why, SERVER_LOST, error)
    pause = min(SERVER_PAUSE_S * 2**ending.servers_lost, SERVER_PAUSE_MOST_S)
    detail = f"{words}; lost {ending.servers_lost + 1} of {ending.max_attempts} times"
    return Verdict(
        State.QUEUED,
        f"{why}; to resume",
        interrupted=SERVER_LOST,
        deferral=Deferral(Reason.SERVER_LOST, detail, now + pause),
        ended=why,
    )


def _how(ending: Ending) -> str:
    if ending.exit_status >= 0:
        return f"exit {ending.exit_status}"
    try:
        return f"killed by {signal.Signals(-ending.exit_status).name}"
    except ValueError:
        return f"killed by signal {-ending.exit_status}"


def _crashed(ending: Ending) -> Verdict:
    how = _how(ending)
    words = f": {ending.last_words}" if ending.last_words else ""
    error = f"the engine crashed ({how}){words}; see its engine.log"
    return Verdict(State.FAILED, f"the engine crashed ({how})", "CRASH", error)


def _stopped(ending: Ending, now: float) -> Verdict:
    killed = _killed(ending)
    late = f"; {killed}" if killed else ""
    if ending.abort is None:
        return _stopped_by_itself(ending, late, now)
    reason = ending.abort.reason
    if reason is AbortReason.CANCEL:
        return Verdict(State.CANCELLED, f"cancelled{late}")
    if reason in _RESUMED:
        asked = "put back on request" if reason is AbortReason.REQUEUE else f"stopped ({reason})"
        silent = "no event came any more" if reason is AbortReason.SILENT else ""
        return Verdict(
            State.QUEUED,
            f"{asked}, to resume{late}",
            interrupted=reason.name,
            later=reason in _LATER,
            ended="; ".join(filter(None, (silent, killed))),
        )
    if reason is AbortReason.MEMORY:
        return _out_of_memory(ending, late)
    error = "an operator stopped it; its last checkpoint can be resumed"
    return Verdict(State.ABORTED, f"stopped by an operator{late}", "OPERATOR", error)


def _stopped_by_itself(ending: Ending, late: str, now: float) -> Verdict:
    """No sentinel stands."""
    if ending.guarded:  # there was no room for it
        return _out_of_memory(ending, late)
    cause, words = _named(ending)
    if cause == SERVER_LOST:
        return _server_lost(ending, words, now)
    error = "the engine stopped without a request; see its engine.log"
    return Verdict(State.ABORTED, "stopped without a request", "STOPPED", error)


def _killed(ending: Ending) -> str:
    """By whom, in words; empty where it ended by itself."""
    if ending.guarded:
        return "the memory watchdog killed it: there was no time for a checkpoint"
    return "killed, its checkpoint did not come in time" if ending.overdue else ""


def _out_of_memory(ending: Ending, late: str) -> Verdict:
    abort = ending.abort
    left = "" if abort is None or abort.headroom_gb is None else f" at {abort.headroom_gb:.1f} GB"
    why = f"stopped for memory{left}{late}"
    if ending.oom_deferred < MEMORY_CHANCES:
        return Verdict(
            State.QUEUED, f"{why}, to resume once", oom=True, interrupted=MEMORY, ended=why
        )
    error = f"memory ran short{left}, {ending.oom_deferred + 1} times; {ending.make_smaller}"
    return Verdict(State.ABORTED, why, MEMORY, error, oom=True)
