"""A reward function of an operator's module, `my_rewards.style:brevity`, imported and called.

Two forms, told apart by their signature: the verifier `(predicted, expected) → float`, and TRL's
`(prompts, completions, completion_ids, trainer_state, log_extra, log_metric, **columns) →
list[float | None]`, sync or async. Only modules that the operator names in
`NIGHTLANE_REWARD_MODULES` (comma-separated; a package allows what is in it) are imported: a job may
choose among them, never bring code of its own. Runs in a process of its own
(`engine.rewards.workers.function_worker`); knows no process itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import inspect
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from engine.contract.errors import NightlaneError
from engine.contract.verifiers import reward_problem
from engine.rewards.judgement import number_of

Form = Literal["verifier", "trl"]

TRL_NAMES = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
"""What TRL passes beside the columns of the rows."""
_TRL_OWN = frozenset({"prompt", "completion", "completion_ids"})
"""Columns that it keeps for itself."""
_LONGEST = 500
"""Characters of a text that is written down."""


class RewardImportError(NightlaneError):
    """A reward that is not allowed, not there, or no function."""


@dataclass(frozen=True)
class TrainerState:
    """What of TRL's `trainer_state` a reward function may read."""

    global_step: int
    """0 while the first step's completions are judged."""
    max_steps: int
    epoch: float = 0.0
    is_local_process_zero: bool = True
    is_world_process_zero: bool = True
    log_history: Sequence[Mapping[str, Any]] = ()


@dataclass
class Call:
    """One call's arguments, and what the function logs meanwhile."""

    prompts: Sequence[Any]
    completions: Sequence[Any]
    completion_ids: Sequence[Sequence[int]]
    expected: Sequence[str]
    columns: Mapping[str, Sequence[Any]]
    state: TrainerState
    extra: dict[str, list[Any]] = field(default_factory=dict)
    metrics: dict[str, list[float]] = field(default_factory=dict)

    def log_extra(self, column: str, values: Sequence[Any]) -> None:
        """A column of the samples: one value a completion."""
        self.extra[str(column)] = [_plain(value) for value in values]

    def log_metric(self, name: str, value: float) -> None:
        """A number of this call."""
        self.metrics.setdefault(str(name), []).append(float(value))

    def arguments(self) -> dict[str, Any]:
        """All that TRL passes."""
        columns = {name: list(c) for name, c in self.columns.items() if name not in _TRL_OWN}
        return columns | {
            "prompts": list(self.prompts),
            "completions": list(self.completions),
            "completion_ids": [list(ids) for ids in self.completion_ids],
            "trainer_state": self.state,
            "log_extra": self.log_extra,
            "log_metric": self.log_metric,
        }


@dataclass(frozen=True)
class RewardFunction:
    """What stands behind `module:name`."""

    path: str
    function: Callable[..., Any]

    @cached_property
    def parameters(self) -> Sequence[inspect.Parameter]:
        """None where they cannot be told, as of some built-in ones: then it is given everything."""
        try:
            return tuple(inspect.signature(self.function).parameters.values())
        except (ValueError, TypeError):
            return (inspect.Parameter("columns", inspect.Parameter.VAR_KEYWORD),)

    @property
    def takes_all(self) -> bool:
        """Whether it has `**kwargs`."""
        return any(one.kind is one.VAR_KEYWORD for one in self.parameters)

    @property
    def form(self) -> Form:
        """A verifier takes two arguments by their place and knows none of TRL's names."""
        if self.takes_all or any(one.name in TRL_NAMES for one in self.parameters):
            return "trl"
        return "verifier"

    @property
    def is_async(self) -> bool:
        """`async def`, of a function or of an object that is called."""
        called = getattr(self.function, "__call__", None)  # noqa: B004 - whether it is `async def`
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(called)

    def signature_problem(self, columns: Sequence[str]) -> str | None:
        """What it asks for and no row has; None where it can be called."""
        if self.form == "verifier":
            try:
                inspect.signature(self.function).bind("", "")
            except TypeError:
                takes = ", ".join(one.name for one in self.parameters) or "nothing"
                return (
                    f"takes {takes}: neither (predicted, expected) nor any of TRL's names "
                    f"({', '.join(TRL_NAMES)}, **columns)"
                )
            return None
        given = {*TRL_NAMES, *columns}
        needed = [
            one.name
            for one in self.parameters
            if one.default is one.empty
            and one.kind in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY, one.POSITIONAL_ONLY}
            and one.name not in given
        ]
        if not needed:
            return None
        shown = ", ".join(sorted(columns))
        return f"asks for {', '.join(map(repr, needed))}, and the columns of the rows are: {shown}"

    def start(self, call: Call) -> Any:
        """Call it with what it takes; a coroutine where it is `async def`."""
        given = call.arguments()
        if not self.takes_all:
            known = {one.name for one in self.parameters}
            given = {name: value for name, value in given.items() if name in known}
        return self.function(**given)

    def verify(self, call: Call) -> Any:
        """As a verifier: one call a completion; a coroutine where it is `async def`."""
        pairs = zip(call.completions, call.expected, strict=True)
        said = [self.function(_text(completion), expected) for completion, expected in pairs]
        return _all(said) if self.is_async else said


@dataclass
class Loop:
    """One event loop for all calls, as in TRL: a client opened in one serves in the next."""

    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def __post_init__(self) -> None:
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        """What each came to, or the exception it raised; all at once."""

        async def together() -> list[Any]:
            return await asyncio.gather(*coroutines, return_exceptions=True)

        return asyncio.run_coroutine_threadsafe(together(), self._loop).result()


def load_reward(path: str) -> RewardFunction:
    """The function behind `module:name`. Raises RewardImportError."""
    problem = reward_problem(path)
    if problem is not None:
        raise RewardImportError(f"reward {path!r} {problem}")
    module_name, _, name = path.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), name)
    except (Exception, SystemExit) as error:  # a user's module, which may raise anything
        raise RewardImportError(
            f"reward {path!r} cannot be imported: {last_line(error)}"
        ) from error
    if not callable(function) or isinstance(function, type):
        raise RewardImportError(f"reward {path!r} is no function")
    return RewardFunction(path, function)


def is_outside(error: BaseException | None) -> bool:
    """Whether it speaks of the world around the function: a judge that is not up, memory or an
    accelerator that is not there. That may be another at night.
    """
    named = " ".join(one.__name__ for one in type(error).__mro__)
    around = isinstance(error, OSError | MemoryError) or "Connect" in named or "Timeout" in named
    return around or "CUDA" in str(error) or "NVIDIA" in str(error)


def last_line(error: BaseException) -> str:
    """The last line of its traceback."""
    return " ".join(traceback.format_exception_only(error)[-1].split())[:_LONGEST]


def files_of(module_name: str) -> list[str]:
    """The module's file, and those of the packages around it, as far as they are there."""
    parts = module_name.split(".")
    names = [".".join(parts[: n + 1]) for n in range(len(parts))]
    loaded = [getattr(sys.modules.get(name), "__file__", None) for name in names]
    if loaded[-1] is None:
        with contextlib.suppress(Exception):  # a package that breaks as it is imported
            spec = importlib.util.find_spec(module_name)
            loaded.append(spec.origin if spec else None)
    return [file for file in loaded if file]


def rewards_of(returned: Any, count: int) -> list[Any]:
    """What a function of TRL's returned, one entry a completion: a number, None, or what is wrong
    with it as a text.

    Raises TypeError for what is no list of `count` entries.
    """
    if isinstance(returned, str | bytes | Mapping):
        raise TypeError(f"it returned a {type(returned).__name__}, not a list of rewards")
    try:
        entries = list(returned)
    except TypeError:
        raise TypeError(f"it returned {type(returned).__name__}, not a list of rewards") from None
    if len(entries) != count:
        raise TypeError(f"it returned {len(entries)} rewards for {count} completions")
    return [_entry(entry) for entry in entries]


def _entry(entry: Any) -> Any:
    if entry is None:
        return None
    try:
        return number_of(entry)
    except TypeError as error:
        return f"TypeError: {error}"


async def _all(said: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    return await asyncio.gather(*said)


def _text(completion: Any) -> str:
    """A verifier reads text, also of a conversation."""
    return completion if isinstance(completion, str) else str(completion[0]["content"])


def _plain(value: Any) -> Any:
    """As JSON has it; of anything else its text, shortened."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)[:_LONGEST]
