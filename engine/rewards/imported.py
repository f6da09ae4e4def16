"""Rewards of TRL's signature, by import path: `my_rewards.style:brevity`.

TRL calls `reward(prompts=…, completions=…, **columns)` and takes a list of floats. Only modules
the operator names in `NIGHTLANE_REWARD_MODULES` (comma-separated; a package allows what is in
it) are imported: a job may choose among them, never bring code of its own. They run inside the
engine's process, unguarded, like the engine's own code.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

from engine.contract.errors import NightlaneError
from engine.contract.verifiers import reward_problem
from engine.rewards.judgement import number_of


class RewardImportError(NightlaneError):
    """A reward that is not allowed, not there, or no function."""


def load_reward(path: str) -> Callable[[str, str], float | None]:
    """The function behind `module:name` as a verifier. Raises RewardImportError."""
    problem = reward_problem(path)
    if problem is not None:
        raise RewardImportError(f"reward {path!r} {problem}")
    module_name, _, name = path.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), name)
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:  # a user's module, which may raise anything
        line = traceback.format_exception_only(error)[-1].strip()
        raise RewardImportError(f"reward {path!r} cannot be imported: {line}") from error
    if not callable(function):
        raise RewardImportError(f"reward {path!r} is no function")
    return lambda completion, expected: _judge(function, completion, expected)


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


def _judge(function: Callable[..., Any], completion: str, expected: str) -> float | None:
    """None is TRL's "does not apply here": not judged."""
    columns = {"answer": expected, "solution": expected, **_columns(expected)}
    rewards = function(
        prompts=[columns.pop("prompt", "")],
        completions=[completion],
        **{name: [value] for name, value in columns.items()},
    )
    (reward,) = rewards
    if reward is None:
        return None
    return number_of(reward)


def _columns(expected: str) -> dict[str, Any]:
    """An `expected` that is a JSON object brings the row's columns by name."""
    try:
        row = json.loads(expected)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}
