"""Reward functions of an operator's modules, in a worker process that can be killed.

One process a run for all of them, so that a module which loads a judge loads it once. A call that
raises or returns a wrong length is asked again row by row, and so is one that hangs: the rows that
do neither keep their reward. Never imports a function itself.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.contract.errors import NightlaneError
from engine.rewards.case import Case
from engine.rewards.judgement import Reason, Verdict, verdict_of
from engine.rewards.workers import frames
from engine.rewards.workers.function_worker import LONGEST
from engine.rewards.workers.pool import ROOT
from engine.run.stop import check_abort

START_S = 600.0
"""The import of a module may load a judge's weights."""
GIVEN_UP = 3
"""Rows of one call that may hang, or end the process, before the others are not asked any more."""
_LOOK_S = 0.5
"""Between two looks at the abort."""


class FunctionError(NightlaneError):
    """A reward function that cannot be imported, or no process to run it in.

    `outside`: for a reason that may be gone at night.
    """

    def __init__(self, message: str, *, outside: bool = False) -> None:
        self.outside = outside
        super().__init__(message)


class _LateError(Exception):
    """No answer in time; the process is gone."""


class _GoneError(Exception):
    """The process ended inside a call."""


class Functions:
    """The worker process of some functions. `ask` starts it, and anew after it was killed."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        timeout_s: float = 60.0,
        max_steps: int = 0,
        own_group: bool = True,
    ) -> None:
        """`timeout_s`: of one call; `max_steps`: what a function may read of the run. `own_group`:
        False where all that this process starts is killed with it.
        """
        self.own_group = own_group
        self.paths = tuple(dict.fromkeys(paths))
        self.timeout_s = timeout_s
        self.max_steps = max_steps
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._async: Mapping[str, bool] = {}
        atexit.register(self.close)

    def start(self) -> None:
        """Import the functions. Raises FunctionError with what the import said."""
        if self._process is not None:
            return
        mine, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "engine.rewards.workers.function_worker",
                    str(theirs.fileno()),
                    str(os.getpid()),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": _path_with_root()},
                start_new_session=self.own_group,
            )
        self._channel = mine
        try:
            frames.send(mine, sys.path)
            frames.send(mine, self.paths)
            known = self._answer(START_S)
        except _LateError:
            raise FunctionError(
                f"the import of {', '.join(self.paths)} takes more than {START_S:.0f} s",
                outside=True,
            ) from None
        except _GoneError:
            raise FunctionError(
                f"the process that imports {', '.join(self.paths)} ended inside the import",
                outside=True,
            ) from None
        if "problem" in known:
            self.close()
            raise FunctionError(known["problem"], outside=known["outside"])
        self._async = known

    def close(self) -> None:
        """End the process and all that it started."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if self.own_group:
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()
        if self._channel is not None:
            self._channel.close()
        self._process = self._channel = None

    def signature_problem(self, path: str, columns: Sequence[str]) -> str | None:
        """What a function asks for that no row has. Raises FunctionError."""
        self.start()
        [found] = self._call([path], {"known_columns": list(columns)})
        problem: str | None = found["problem"]
        return problem

    def ask(self, cases: Sequence[Case]) -> dict[str, list[Said]]:
        """What each function says to every case, in their order."""
        if not cases:
            return {path: [] for path in self.paths}
        self.start()
        together = [path for path in self.paths if self._async[path]]
        alone = [path for path in self.paths if not self._async[path]]
        found = self._asked(together, cases) if together else {}
        for path in alone:
            found |= self._asked([path], cases)
        return found

    def _asked(self, paths: Sequence[str], cases: Sequence[Case]) -> dict[str, list[Said]]:
        """Of one call; of what went wrong in it row by row, each function by itself."""
        try:
            answers = self._call(paths, self._message(cases))
        except (_LateError, _GoneError) as lost:
            if len(paths) > 1:
                return {path: self._asked([path], cases)[path] for path in paths}
            answers = [_lost(lost)]
        found = {}
        for path, answer in zip(paths, answers, strict=True):
            if "rewards" in answer:
                found[path] = _said(answer)
            elif len(cases) == 1:
                found[path] = [Said(error=answer)]
            else:
                found[path] = self._row_by_row(path, cases)
        return found

    def _row_by_row(self, path: str, cases: Sequence[Case]) -> list[Said]:
        found: list[Said] = []
        lost: list[Said] = []
        for case in cases:
            if len(lost) >= GIVEN_UP:
                found.append(lost[-1])
                continue
            [said] = self._asked([path], [case])[path]
            found.append(said)
            if said.error and said.error.get("lost"):
                lost.append(said)
        return found

    def _message(self, cases: Sequence[Case]) -> dict[str, Any]:
        conversational = not isinstance(cases[0].prompt, str)
        rows = [columns_of(case) for case in cases]
        names = list(dict.fromkeys(name for row in rows for name in row))
        return {
            "prompts": [case.prompt for case in cases],
            "completions": [
                [{"role": "assistant", "content": case.completion}]
                if conversational
                else case.completion
                for case in cases
            ],
            "completion_ids": [list(case.ids) for case in cases],
            "expected": [case.expected for case in cases],
            "columns": {name: [row.get(name) for row in rows] for name in names},
            "step": cases[0].step,
            "max_steps": self.max_steps,
        }

    def _call(self, paths: Sequence[str], message: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Raises _LateError, _GoneError; the process is gone then, and started anew when asked."""
        self.start()
        assert self._channel is not None
        try:
            self._channel.settimeout(self.timeout_s)
            frames.send(self._channel, {"names": list(paths), **message})
        except frames.ClosedError:
            self.close()
            raise _GoneError from None
        answers: list[dict[str, Any]] = self._answer(self.timeout_s)
        return answers

    def _answer(self, limit_s: float) -> Any:
        assert self._channel is not None
        until = time.monotonic() + limit_s
        try:
            _await(self._channel, until)
            self._channel.settimeout(max(1.0, until - time.monotonic()))
            return frames.receive(self._channel, LONGEST)
        except frames.ClosedError:
            self.close()
            raise _GoneError from None
        except BaseException:
            self.close()
            raise


def _await(channel: socket.socket, until: float) -> None:
    """Until there is something to read. Raises _LateError, and Aborted where the run must stop."""
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while not selector.select(min(_LOOK_S, max(0.0, until - time.monotonic()))):
            check_abort()
            if time.monotonic() >= until:
                raise _LateError


def columns_of(case: Case) -> dict[str, Any]:
    """Those of the row; beside them `answer` and `solution` where it has none of that name, and
    the fields of an answer that is an object.
    """
    return {"answer": case.expected, "solution": case.expected, **_fields(case), **case.columns}


def _fields(case: Case) -> Mapping[str, Any]:
    if not case.expected.startswith("{"):
        return {}
    try:
        fields = json.loads(case.expected)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


@dataclass(frozen=True)
class Said:
    """What a function says about one completion: a number, None, or what went wrong."""

    reward: float | None = None
    error: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] | None = None
    logged: Mapping[str, float] | None = None

    @property
    def outside(self) -> bool:
        """Whether what went wrong lies around the function, and may be another time at night."""
        return bool(self.error and self.error.get("outside"))

    def verdict(self, threshold: float) -> Verdict:
        """At or above `threshold` it is right."""
        if self.error is None:
            return verdict_of(self.reward, threshold)
        reason = Reason.TIMEOUT if self.error.get("late") else Reason.CRASH
        return Verdict(0.0, self.error["crash"], reason)


def _said(answer: Mapping[str, Any]) -> list[Said]:
    extra, logged = answer["extra"], answer["metrics"]
    return [
        Said(
            reward=None if isinstance(reward, str) else reward,
            error={"crash": reward} if isinstance(reward, str) else None,
            extra={name: column[i] for name, column in extra.items()},
            logged=logged,
        )
        for i, reward in enumerate(answer["rewards"])
    ]


def _lost(error: Exception) -> dict[str, Any]:
    late = isinstance(error, _LateError)
    why = "no answer within reward_timeout_s" if late else "its process ended inside the call"
    return {"crash": why, "late": late, "lost": True}


def _path_with_root() -> str:
    """`engine` is found by the process too, wherever it is started."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
