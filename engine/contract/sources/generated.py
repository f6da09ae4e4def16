"""Rows that reasoning-gym makes: `reasoning_gym:chain_sum?size=500&seed=1`.

What stands behind the question mark are the size, the seed and the settings of that task. The same
source gives the same rows, in whichever process asks for them. Knows no layout.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from engine.contract.documents import UnreadableError, parse_json
from engine.contract.errors import RLLoopError

PREFIX = "reasoning_gym:"
SIZE, SEED = 500, 0
MOST_ROWS = 100_000


def is_generated(source: str) -> bool:
    """Whether the source is no file."""
    return source.startswith(PREFIX)


def task_of(source: str) -> str:
    """
    >>> task_of("reasoning_gym:chain_sum?size=500")
    'chain_sum'
    """
    return source.removeprefix(PREFIX).partition("?")[0]


_UNSTEADY = frozenset(
    ("isomorphic_strings", "knight_swap", "list_functions", "polynomial_multiplication",
     "ransom_note", "word_ladder")
)  # fmt: skip
"""Tasks of 0.1.25 that go through sets of texts, whose order is another one in each process."""


class Generated:
    """The rows of one task, each made when it is asked for."""

    counts = "row"

    def __init__(self, source: str) -> None:
        """Raises RLLoopError for a task or a setting that there is not."""
        self.path = Path(source)
        self._source = source
        task, told = task_of(source), source.partition("?")[2]
        self._rows = self._made(task, {"size": SIZE, "seed": SEED} | self._settings(told))

    def __len__(self) -> int:
        return len(self._rows)

    def each(
        self, split: str | None, *, whole: bool = True
    ) -> Generator[tuple[int, dict[str, Any]]]:
        """Number and columns of each row. Raises RLLoopError."""
        del whole
        if split is not None:
            problem = f"has no splits, and data.split is {split!r}"
            raise self._refused(problem, "leave data.split out; held-out rows are carved")
        for index in range(len(self._rows)):
            try:
                yield index + 1, dict(self._rows[index])
            except Exception as error:
                problem = f"row {index + 1} cannot be made ({type(error).__name__}: {error})"
                raise self._refused(problem, "use other settings of the task") from error

    def _settings(self, told: str) -> dict[str, Any]:
        try:
            pairs = parse_qsl(told, keep_blank_values=True, strict_parsing=bool(told))
        except ValueError:
            raise self._refused(f"has {told!r} behind its '?'", _FORM) from None
        twice = {name for name, _ in pairs if [one for one, _ in pairs].count(name) > 1}
        if twice:
            raise self._refused(f"sets {min(twice)} twice", "set it once")
        found = {name: _value(value) for name, value in pairs}
        for name, least, most in (("size", 1, MOST_ROWS), ("seed", 0, 2**31 - 1)):
            value = found.get(name, least)
            if type(value) is not int or not least <= value <= most:
                problem = f"has {name} {value!r}, which is no whole number from {least} to {most}"
                raise self._refused(problem, _FORM)
        return found

    def _made(self, task: str, settings: dict[str, Any]) -> Any:
        if importlib.util.find_spec("reasoning_gym") is None:
            problem = "wants reasoning-gym, which is not installed"
            raise self._refused(problem, "pip install 'nightlane[gym]'")
        from reasoning_gym.factory import DATASETS, create_dataset  # noqa: PLC0415 - a second

        if task not in DATASETS:
            raise self._refused(*_unknown("task", task, list(DATASETS)))
        if task in _UNSTEADY:
            problem = f"makes other rows of {task} in each process, and a run goes on with its own"
            raise self._refused(problem, "write them to a JSONL file once, and name that")
        has = [one.name for one in dataclasses.fields(DATASETS[task][1])]
        for name in settings:
            if name not in has:
                raise self._refused(*_unknown("setting", name, has))
        try:
            return create_dataset(task, **settings)
        except Exception as error:  # each task has checks of its own
            problem = f"{task} takes no such settings ({type(error).__name__}: {error})"
            raise self._refused(problem, f"correct them; it has {', '.join(has)}") from error

    def _refused(self, problem: str, remedy: str) -> RLLoopError:
        return RLLoopError.of("data.source", self._source, problem, remedy)


_FORM = "write it like reasoning_gym:chain_sum?size=500&seed=1"


def _value(text: str) -> Any:
    """A number, true, false or a list as JSON has it; all else is a text."""
    try:
        return parse_json(text)
    except UnreadableError:
        return text


def _unknown(what: str, name: str, known: list[str]) -> tuple[str, str]:
    near = difflib.get_close_matches(name, known, 3)
    remedy = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
    return f"names {name!r}, which is no {what} of reasoning-gym", remedy
