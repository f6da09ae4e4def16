"""Errors that cross rooms: what happened, which value, what to do.

Knows no exit code of a program and no HTTP status; those belong to the room that answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

MOST_PROBLEMS = 20
"""Of one refusal: whoever sent thousands made one mistake, and nobody reads their list."""
_MOST_LETTERS = 200
"""A value in a line is there to be recognised; the line is there to be read."""


class NightlaneError(Exception):
    """Any failure this project can explain in one line.

    `retryable` says whether the same call can succeed later without anybody changing its input.
    """

    retryable = False
    cause: str | None = None
    """One word under which a run ends that this ends: SERVER_LOST, COLLAPSED. None: it is a crash.

    With a cause, a retryable error puts the job back, to go on from its last checkpoint, and
    another fails it."""
    result: Mapping[str, Any] = MappingProxyType({})
    """What the run had reached; filled in by whoever knows on the way out."""

    @property
    def resumable(self) -> bool:
        """Whether a run that ends by it goes on later from where it stands."""
        return self.retryable and self.cause is not None


@dataclass(frozen=True)
class ConfigProblem:
    """One thing wrong with one field of a config."""

    field: str
    """Dotted path of the field, e.g. `warmup.lr`; `(config)` for the whole document."""
    value: Any
    """What was given; None when nothing was. A long text or number is kept shortened."""
    problem: str
    """What is wrong with it, without the field name: `is not a setting`."""
    remedy: str
    """What to write instead: `did you mean b_ratio?`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", shown_short(self.value))

    def line(self) -> str:
        """The problem in one line.

        >>> ConfigProblem("lr", -1, "must be 0 or more", "use 1e-6").line()
        'lr: must be 0 or more (got -1); use 1e-6'
        """
        got = "" if self.value is None else f" (got {self.value!r})"
        return f"{self.field}: {self.problem}{got}; {self.remedy}"

    def as_dict(self) -> dict[str, Any]:
        """JSON form, the same at every door."""
        return asdict(self) | {"message": self.line()}


def shown_short(value: Any) -> Any:
    """As much of a value as a line holds."""
    if isinstance(value, str) and len(value) > _MOST_LETTERS:
        return value[: _MOST_LETTERS - 1] + "…"
    # Counted in bits: Python refuses to write out an int of thousands of digits.
    if isinstance(value, int) and value.bit_length() > 3 * _MOST_LETTERS:
        return f"a number of about {round(value.bit_length() * math.log10(2))} digits"
    return value


def shortened(problems: Sequence[ConfigProblem]) -> tuple[ConfigProblem, ...]:
    """The first of them, and how many more there are."""
    more = len(problems) - MOST_PROBLEMS
    if more <= 0:
        return tuple(problems)
    rest = ConfigProblem("(config)", None, f"and {more} more problems", "correct these first")
    return (*problems[:MOST_PROBLEMS], rest)


class UnfitError(NightlaneError):
    """A model or tokenizer that a config names and no run can work with: it ends as `CONFIG`."""


class ConfigError(NightlaneError):
    """A config that cannot run, with every problem found in it; of very many the first."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems = shortened(problems)
        super().__init__("\n".join(problem.line() for problem in self.problems))


class RLLoopError(ConfigError):
    """An `rl_run` that must not start: a bad config, a corpus under its floor, a missing seam."""

    @classmethod
    def of(cls, field: str, value: Any, problem: str, remedy: str) -> RLLoopError:
        """The common case: exactly one problem."""
        return cls([ConfigProblem(field, value, problem, remedy)])
