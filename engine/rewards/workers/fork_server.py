"""The process that verifier workers are forked from: libraries loaded once, a fork is milliseconds.

`python -m engine.rewards.workers.fork_server FD LIMITS ENGINE`: reads commands on the socket FD of
the engine, whose process id is ENGINE. It is the parent of every worker, so it alone kills and
reaps them and no pid can be mistaken for a recycled one. It ends, and its workers with it, when the
engine closes the socket or dies.

Never imports torch. A worker judges one message after the other; what hangs is killed from
outside, so no library sets an alarm here.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.rewards.judgement import Reason, Verdict
from engine.rewards.workers import frames

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Limits:
    """What one worker may use."""

    memory_mb: int
    """Address space."""


def main(argv: list[str]) -> None:
    """Serve until the engine is gone."""
    die_with_parent(int(argv[2]))
    # A worker that is killed mid-write or an engine that is gone must not end us by SIGPIPE/INT.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    limits = Limits(**json.loads(argv[1]))
    control = socket.socket(fileno=int(argv[0]))
    workers: set[int] = set()
    with contextlib.suppress(frames.ClosedError):
        while True:
            _obey(control, frames.receive(control), workers, limits)
    for pid in list(workers):
        _end(workers, pid)


def _obey(control: socket.socket, order: Any, workers: set[int], limits: Limits) -> None:
    match order:
        case ["load", str(name)]:
            frames.send(control, _load(name))
        case ["fork"]:
            pid = _fork(control, limits)
            workers.add(pid)
            frames.send(control, pid)
        case ["kill", int(pid)]:
            _end(workers, pid)
            frames.send(control, None)


def _load(name: str) -> str | None:
    """Import a verifier and judge its example once, so that no first answer pays for it."""
    try:
        module = importlib.import_module(f"engine.rewards.verifiers.{name}")
        module.verify(*module.WARM_UP)
    except Exception as error:  # noqa: BLE001 - told to the engine, which refuses to start
        return f"{type(error).__name__}: {error}"
    gc.freeze()
    return None


def _fork(control: socket.socket, limits: Limits) -> int:
    _message, fds, _flags, _address = socket.recv_fds(control, 1, 1)
    nursery = os.getpid()
    pid = os.fork()
    if pid:
        os.close(fds[0])
        return pid
    try:
        control.close()
        die_with_parent(nursery)
        _bound(limits)
        _judge_forever(socket.socket(fileno=fds[0]))
    finally:
        os._exit(1)


def _end(workers: set[int], pid: int) -> None:
    workers.discard(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def die_with_parent(parent: int) -> None:
    """The kernel kills this process when the thread that started it ends; it ends here where that
    came before the kernel was asked: nobody would be told then.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        os._exit(1)


def _bound(limits: Limits) -> None:
    size = limits.memory_mb * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _judge_forever(channel: socket.socket) -> None:
    modules: dict[str, Callable[[str, str], Verdict]] = {}
    while True:
        name, completion, expected = frames.receive(channel)
        if name not in modules:
            modules[name] = importlib.import_module(f"engine.rewards.verifiers.{name}").verify
        try:
            verdict = modules[name](completion, expected)
        except MemoryError:
            # What a library left behind in a full address space is not trusted again.
            frames.send(channel, [0.0, None, Reason.CRASH, True])
            return
        except Exception as error:  # noqa: BLE001 - the verifier's crash, not this worker's
            verdict = Verdict.broke(error)
        frames.send(channel, [verdict.reward, verdict.answer, verdict.reason, False])


if __name__ == "__main__":
    main(sys.argv[1:])
