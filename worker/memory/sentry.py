"""The sentry: the watchdog as a small process of its own, beside one engine.

`python -m worker.memory.sentry PLAN` (JSON, see `Plan`). It has no database, imports nothing large,
locks its memory and asks for real-time scheduling, so that it acts on a machine that is short of
both. Standard input brings the engine's pid, then the phase and step to write beside a decision;
its end means that the supervisor is gone. Standard output carries readings, dropped rather than
waited for. A kill is sent first and written down afterwards, in `watchdog.jsonl`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from worker.memory.readings import DeviceMemory, HostMemory, Pressure, read_all
from worker.memory.rule import FIRST_GUESS_GB_S, HOLD_S, Action, Decision, Limits, Watchdog

DECISIONS = "watchdog.jsonl"
READY = b"ready\n"
SAY_S = 0.25
"""Seconds between two readings on standard output."""
WARN_S = 60.0
"""Least seconds between two warnings in the record."""

_MCL_CURRENT_FUTURE = 3


class Plan(NamedTuple):
    """What a sentry is told; as JSON its only argument."""

    attempt: str
    """The attempt's directory: sentinel and decisions are written there."""
    limits: tuple[float, float, float]
    """Warn, floor and hard floor in GB."""
    meminfo: str
    total_gb: float | None
    """Act as if the box had no more memory."""
    device: int | None
    """Index of a discrete accelerator."""
    device_floor_gb: float
    """Stop when its free memory stays under this; 0 only records it."""
    fastest_file: str
    """Keeps the fastest fall seen on this box."""

    def argument(self) -> str:
        """For the command line."""
        return json.dumps(self._asdict())


class Sentry:
    """One process, one engine."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._host = HostMemory(Path(plan.meminfo), plan.total_gb)
        self._device, self._pressure = DeviceMemory(plan.device), Pressure()
        self._fastest_known = _read_fastest(Path(plan.fastest_file))
        self._watchdog = Watchdog(Limits(*plan.limits), self._fastest_known)
        floor = plan.device_floor_gb
        self._device_watchdog = Watchdog(Limits(floor, floor, 0.0)) if floor else None
        self._engine: int | None = None
        """A pidfd: it never means another process."""
        self._group = 0
        self._place: dict[str, Any] = {"phase": None, "step": None}
        self._heard = b""
        self._least: float | None = None
        self._done: set[Action] = set()
        self._warned_at = self._said_at = float("-inf")

    def run(self) -> None:
        """Until standard input ends and the engine is gone."""
        ears = select.poll()
        ears.register(0, select.POLLIN | select.POLLHUP)
        listening = True
        os.write(1, READY)
        os.set_blocking(1, False)
        while listening or self._engine_lives():
            wait = self._look(time.monotonic())
            if not listening:
                time.sleep(min(wait, SAY_S))
            elif ears.poll(wait * 1000) and not self._listen():
                ears.unregister(0)
                listening = False
        self._keep_fastest()

    def _look(self, now: float) -> float:
        """One look and what follows from it; seconds until the next."""
        free = _rounded(self._host.free_gb())
        decision = self._watchdog.look(now, free)
        if decision.action is Action.KILL:
            self._kill(now, decision, free)
        elif decision.action is Action.STOP:
            self._stop(now, decision, free)
        elif decision.action is Action.WARN:
            self._warn(now, decision, free)
        self._look_at_device(now)
        self._say(now, free)
        return self._watchdog.next_look_s(free)

    def _look_at_device(self, now: float) -> None:
        """A full accelerator ends its own process, never the machine: no kill for it."""
        if self._device_watchdog is None:
            return
        free = _rounded(self._device.free_gb())
        decision = self._device_watchdog.look(now, free)
        if decision.action in (Action.STOP, Action.KILL):
            held = Decision(Action.STOP, decision.rule, decision.fall_gb_s)
            self._stop(now, held, free)

    def _kill(self, seen_at: float, decision: Decision, free: float | None) -> None:
        """The signal first; a group that is gone already is nobody's any more."""
        if Action.KILL in self._done or self._engine is None:
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._engine, signal.SIGKILL)
            with suppress(ProcessLookupError):  # it had no children, and is dead and reaped by now
                os.killpg(self._group, signal.SIGKILL)
            took = time.monotonic() - seen_at
            self._done.add(Action.KILL)
            self._request_stop(self._watchdog.limits.hard_gb, free)
            self._record(decision, free, took)

    def _stop(self, seen_at: float, decision: Decision, free: float | None) -> None:
        if Action.STOP in self._done or self._engine is None:
            return
        self._done.add(Action.STOP)
        self._request_stop(self._watchdog.limits.floor_gb, free)
        self._record(decision, free, time.monotonic() - seen_at)

    def _warn(self, now: float, decision: Decision, free: float | None) -> None:
        if now - self._warned_at >= WARN_S:
            self._warned_at = now
            self._record(decision, free, 0.0)

    def _request_stop(self, floor_gb: float, free: float | None) -> None:
        """The sentinel, unless one stands: the first reason wins."""
        sentinel = Path(self._plan.attempt, "abort")
        temporary = sentinel.with_name(f".abort.{os.getpid()}")
        request = {
            "reason": "memory",
            "headroom_gb": free,
            "floor_gb": floor_gb,
            "tripped_at": time.time(),
        }
        with suppress(OSError):  # a full disk: the kill has been sent, and the record tries again
            temporary.write_text(json.dumps(request) + "\n")
            with suppress(FileExistsError):
                os.link(temporary, sentinel)
            temporary.unlink()

    def _record(self, decision: Decision, free: float | None, took_s: float) -> None:
        """Reading, rule, action and where the training stood, as one line."""
        line = {
            "at": time.time(),
            "action": decision.action,
            "rule": decision.rule,
            "free_gb": free,
            "fall_gb_s": round(decision.fall_gb_s, 3),
            "took_ms": round(took_s * 1000, 3),
            "limits": self._watchdog.limits._asdict(),
            "held_s": HOLD_S,
            "reading": read_all(self._host, self._device, self._pressure)._asdict(),
            **self._place,
        }
        with suppress(OSError), Path(self._plan.attempt, DECISIONS).open("a") as file:
            file.write(json.dumps(line) + "\n")
        self._tell({"action": decision.action, "rule": decision.rule, "free_gb": free})

    def _say(self, now: float, free: float | None) -> None:
        """The latest and the least reading since the last one told."""
        if free is None:
            return
        self._least = free if self._least is None else min(self._least, free)
        message = {"at": time.time(), "free_gb": free, "least_gb": self._least}
        if now - self._said_at >= SAY_S and self._tell(message):
            self._said_at, self._least = now, None

    def _tell(self, message: Mapping[str, Any]) -> bool:
        """Never waits: a supervisor that does not read misses a reading."""
        try:
            os.write(1, json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def _listen(self) -> bool:
        """Take in what the supervisor wrote; false at its end."""
        heard = os.read(0, 4096)
        *lines, self._heard = (self._heard + heard).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "engine" in message:
                self._take_over(message["engine"])
            else:
                self._place = message
        return bool(heard)

    def _take_over(self, pid: int) -> None:
        """The engine leads its own process group."""
        with suppress(ProcessLookupError):
            self._engine, self._group = os.pidfd_open(pid), pid

    def _engine_lives(self) -> bool:
        return self._engine is not None and not select.select([self._engine], [], [], 0)[0]

    def _keep_fastest(self) -> None:
        if self._watchdog.fastest_gb_s > self._fastest_known:
            path = Path(self._plan.fastest_file)
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            with suppress(OSError):
                temporary.write_text(json.dumps({"gb_s": self._watchdog.fastest_gb_s}))
                temporary.replace(path)


def device_of(lane: str) -> int | None:
    """Index of the accelerator that a lane is named after: `gpu0`."""
    found = re.fullmatch(r"gpu(\d+)", lane)
    return int(found[1]) if found else None


def _rounded(free_gb: float | None) -> float | None:
    """To a megabyte: more is noise in a record."""
    return None if free_gb is None else round(free_gb, 3)


def _read_fastest(path: Path) -> float:
    try:
        return max(FIRST_GUESS_GB_S, float(json.loads(path.read_text())["gb_s"]))
    except (OSError, ValueError, KeyError, TypeError):
        return FIRST_GUESS_GB_S


def _stay_able_to_act() -> None:
    """In memory, before the others, and not the one the kernel kills; as far as allowed."""
    ctypes.CDLL(None).mlockall(_MCL_CURRENT_FUTURE)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("-900")
    gc.freeze()
    gc.disable()  # nothing here makes cycles


def main() -> None:
    """Ignores what the terminal sends: it ends with its supervisor and its engine."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sentry = Sentry(Plan(**json.loads(sys.argv[1])))
    _stay_able_to_act()
    sentry.run()


if __name__ == "__main__":
    main()
