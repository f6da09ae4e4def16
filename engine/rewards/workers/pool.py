"""Persistent workers that judge what may hang, with a watchdog that kills and replaces them.

A wait that is given up leaves its computation running; a few of those and every worker is lost.
So a worker that misses its deadline is killed by SIGKILL and a fresh one, forked from the
nursery in milliseconds, takes its place: the thousandth hanging input costs what the first did.

Knows verifiers by name only. Linux: workers die with the engine by a parent-death signal and by
the end of their socket.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import engine
from engine.contract.errors import NightlaneError
from engine.rewards.judgement import Reason, Verdict
from engine.rewards.workers import frames

ROOT = Path(engine.__path__[0]).resolve().parent


class PoolError(NightlaneError):
    """The workers cannot be started."""


@dataclass(frozen=True)
class Question:
    """One answer to be judged."""

    verifier: str
    completion: str
    expected: str


@dataclass
class _Worker:
    pid: int
    channel: socket.socket
    asked: int = -1
    """Index of the question it works on."""
    deadline: float = 0.0


class Pool:
    """Construct, `load` the verifiers, `ask`; one lock, so callers may be threads."""

    def __init__(self, workers: int = 2, wall_s: float = 5.0, memory_mb: int = 2048) -> None:
        """`wall_s`: the longest one judgement may take; `memory_mb`: its address space."""
        self.size, self.wall_s = workers, wall_s
        self.killed = 0
        """Workers replaced because they hung."""
        self._lock = threading.Lock()
        self._workers: list[_Worker] = []
        self._loaded: set[str] = set()
        mine, theirs = socket.socketpair()
        self._control = mine
        limits = json.dumps({"memory_mb": memory_mb})
        with theirs:
            self._nursery = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "engine.rewards.workers.fork_server",
                    str(theirs.fileno()),
                    limits,
                    str(os.getpid()),
                ],
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def load(self, verifier: str) -> None:
        """Have every worker from now on start with this verifier. Raises PoolError."""
        with self._lock:
            if verifier in self._loaded:
                return
            problem = self._order(["load", verifier])
            if problem is not None:
                raise PoolError(f"verifier {verifier!r} cannot run: {problem}")
            self._loaded.add(verifier)
            while self._workers:
                self._discard(self._workers[0])

    def ask(self, questions: Sequence[Question]) -> list[Verdict]:
        """One verdict a question, in their order. `timeout` and `crash` are verdicts too.

        Raises PoolError only when the nursery itself is gone.
        """
        with self._lock:
            return self._ask(questions)

    def close(self) -> None:
        """End workers and nursery; a second call does nothing."""
        with self._lock:
            for worker in self._workers:
                worker.channel.close()
            self._workers.clear()
            self._control.close()
            try:
                self._nursery.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._nursery.kill()
                self._nursery.wait()

    @property
    def pids(self) -> list[int]:
        """The living workers, for tests and diagnosis."""
        return [worker.pid for worker in self._workers]

    def _ask(self, questions: Sequence[Question]) -> list[Verdict]:
        verdicts: list[Verdict | None] = [None] * len(questions)
        waiting = deque(range(len(questions)))
        with selectors.DefaultSelector() as selector:
            busy: dict[int, _Worker] = {}
            while waiting or busy:
                while waiting and len(busy) < self.size:
                    worker = self._give(waiting.popleft(), questions, busy)
                    busy[worker.pid] = worker
                    selector.register(worker.channel, selectors.EVENT_READ, worker)
                for worker in self._finished(selector, busy):
                    selector.unregister(worker.channel)
                    del busy[worker.pid]
                    verdicts[worker.asked] = self._verdict_of(worker)
        return [verdict for verdict in verdicts if verdict is not None]

    def _give(self, index: int, questions: Sequence[Question], busy: dict[int, _Worker]) -> _Worker:
        question = questions[index]
        message = [question.verifier, question.completion, question.expected]
        while True:
            idle = [worker for worker in self._workers if worker.pid not in busy]
            worker = idle[0] if idle else self._fork()
            try:
                frames.send(worker.channel, message)
            except frames.ClosedError:  # died while idle: its work is nobody's loss
                self._discard(worker)
                continue
            worker.asked = index
            worker.deadline = time.monotonic() + self.wall_s
            return worker

    def _finished(
        self, selector: selectors.BaseSelector, busy: dict[int, _Worker]
    ) -> list[_Worker]:
        """Workers with an answer, and workers whose time is up."""
        now = time.monotonic()
        first = min(worker.deadline for worker in busy.values())
        ready = [key.data for key, _ in selector.select(max(0.0, first - now))]
        now = time.monotonic()
        return ready or [worker for worker in busy.values() if worker.deadline <= now]

    def _verdict_of(self, worker: _Worker) -> Verdict:
        """Read its answer; a late or broken worker is killed and has none."""
        worker.channel.settimeout(max(0.001, worker.deadline - time.monotonic()))
        try:
            with contextlib.suppress(frames.ClosedError):
                if time.monotonic() < worker.deadline:
                    reward, answer, reason, was_last = frames.receive(worker.channel)
                    worker.channel.settimeout(None)
                    if was_last:
                        self._discard(worker)
                    return Verdict(float(reward), answer, Reason(reason))
        except (ValueError, TypeError):
            pass
        late = time.monotonic() >= worker.deadline
        self.killed += late
        self._discard(worker)
        return Verdict(0.0, None, Reason.TIMEOUT if late else Reason.CRASH)

    def _fork(self) -> _Worker:
        mine, theirs = socket.socketpair()
        with theirs:
            try:
                frames.send(self._control, ["fork"])
                socket.send_fds(self._control, [b"w"], [theirs.fileno()])
                pid = frames.receive(self._control)
            except (frames.ClosedError, OSError) as error:
                raise PoolError(
                    f"the verifier nursery is gone ({error}); restart the run"
                ) from None
        worker = _Worker(pid, mine)
        self._workers.append(worker)
        return worker

    def _discard(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        self._order(["kill", worker.pid])
        worker.channel.close()

    def _order(self, order: list[str | int]) -> object:
        try:
            frames.send(self._control, order)
            return frames.receive(self._control)
        except frames.ClosedError as error:
            raise PoolError(f"the verifier nursery is gone ({error}); restart the run") from None


_shared: list[Pool] = []


def shared_pool() -> Pool:
    """The engine's own pool, started on first use, closed at exit."""
    if not _shared:
        _shared.append(Pool())
        atexit.register(_shared[0].close)
    return _shared[0]
