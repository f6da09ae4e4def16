"""The process in which an operator's reward functions run: they may hang, exit or take the memory.

`python -m engine.rewards.workers.function_worker FD ENGINE`: reads messages on the socket FD of the
engine, whose process id is ENGINE. The first is the list of `sys.path`, the second the functions;
then one call after the other. It is killed from outside when a call takes too long, and dies with
the engine.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.rewards.imported import (
    Call,
    Loop,
    RewardFunction,
    RewardImportError,
    TrainerState,
    is_outside,
    last_line,
    load_reward,
    rewards_of,
)
from engine.rewards.workers import frames
from engine.rewards.workers.fork_server import die_with_parent

LONGEST = 2**30
"""Bytes of one message: a step's completions with their ids and columns."""


def main(argv: Sequence[str]) -> None:
    """Serve until the engine is gone."""
    die_with_parent(int(argv[1]))
    channel = socket.socket(fileno=int(argv[0]))
    with contextlib.suppress(frames.ClosedError):
        sys.path[:] = frames.receive(channel)
        functions = _load(channel, frames.receive(channel))
        loop = Loop()
        while functions:
            message = frames.receive(channel, LONGEST)
            frames.send(
                channel, _called([functions[name] for name in message["names"]], message, loop)
            )


def _load(channel: socket.socket, paths: Sequence[str]) -> Mapping[str, RewardFunction]:
    """Import each, and say what was found; nothing more comes where one is wrong."""
    found: dict[str, RewardFunction] = {}
    for path in paths:
        try:
            found[path] = load_reward(path)
        except RewardImportError as error:
            outside = is_outside(error.__cause__)
            frames.send(channel, {"problem": str(error), "outside": outside})
            return {}
    frames.send(channel, {path: one.is_async for path, one in found.items()})
    return found


def _called(
    functions: Sequence[RewardFunction], message: Mapping[str, Any], loop: Loop
) -> list[dict[str, Any]]:
    """One answer a function. Those that are async run at once."""
    if "known_columns" in message:
        return [{"problem": one.signature_problem(message["known_columns"])} for one in functions]
    calls = [_call_of(message) for _ in functions]
    returned: list[Any] = [_started(one, call) for one, call in zip(functions, calls, strict=True)]
    waiting = [i for i, one in enumerate(returned) if hasattr(one, "__await__")]
    for i, result in zip(waiting, loop.run([returned[i] for i in waiting]), strict=True):
        returned[i] = _Raised(result) if isinstance(result, BaseException) else result
    pairs = zip(calls, returned, strict=True)
    return [_answer(call, result) for call, result in pairs]


@dataclass(frozen=True)
class _Raised:
    error: BaseException


def _started(function: RewardFunction, call: Call) -> Any:
    try:
        return function.verify(call) if function.form == "verifier" else function.start(call)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's function: it is its crash
        return _Raised(error)


def _answer(call: Call, returned: Any) -> dict[str, Any]:
    count = len(call.completions)
    if isinstance(returned, _Raised):
        return _crash(returned.error)
    try:
        rewards = rewards_of(returned, count)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an object of its own
        return _crash(error)
    extra = {name: column for name, column in call.extra.items() if len(column) == count}
    metrics = {name: sum(values) / len(values) for name, values in call.metrics.items()}
    return {"rewards": rewards, "extra": extra, "metrics": metrics}


def _crash(error: BaseException) -> dict[str, Any]:
    return {
        "crash": last_line(error),
        "late": isinstance(error, TimeoutError),
        "outside": is_outside(error),
    }


def _call_of(message: Mapping[str, Any]) -> Call:
    return Call(
        prompts=message["prompts"],
        completions=message["completions"],
        completion_ids=message["completion_ids"],
        expected=message["expected"],
        columns=message["columns"],
        state=TrainerState(message["step"], message["max_steps"]),
    )


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main(sys.argv[1:])
