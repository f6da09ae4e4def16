"""A look: what only torch or a user's own module can tell about a config before it is queued.

A kind declares a `Look`; the worker asks `python -m engine look`, a child process, and gets a
`Looked` back as JSON. Knows no kind and starts no process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.contract.errors import ConfigProblem


@dataclass(frozen=True)
class Look:
    """How a kind is looked at."""

    entry: str
    """`package.module:function`, called in the child process as `function(config)`; it answers a
    `Looked`."""
    asks: Callable[[Any], Mapping[str, Any]]
    """The settings, as JSON, that the answer depends on; empty where there is nothing to ask, and
    then no process starts. Two configs that ask the same share one answer. Must be quick."""


@dataclass(frozen=True)
class Looked:
    """What was found."""

    problems: Sequence[ConfigProblem] = ()
    """The job cannot run: it is refused."""
    cautions: Sequence[ConfigProblem] = ()
    files: Sequence[str] = ()
    """Files that the answer rests on beside the kind's `inputs`: while none of them changes, it
    holds."""

    def __add__(self, other: Looked) -> Looked:
        return Looked(
            (*self.problems, *other.problems),
            (*self.cautions, *other.cautions),
            (*self.files, *other.files),
        )

    def written(self) -> bytes:
        """As one line of JSON; `read` takes it back."""
        return json.dumps(asdict(self), default=str).encode() + b"\n"

    @classmethod
    def unknown(cls, reason: str) -> Looked:
        """Nothing was found out, which refuses no job."""
        problem = f"could not be tried beforehand: {reason}"
        remedy = "the run will tell; try it with a few steps first"
        return cls(cautions=(ConfigProblem("(config)", None, problem, remedy),))

    @classmethod
    def read(cls, answer: bytes) -> Looked:
        """Raises ValueError for what `written` did not write."""
        try:
            found = json.loads(answer)
            return cls(
                tuple(ConfigProblem(**problem) for problem in found["problems"]),
                tuple(ConfigProblem(**caution) for caution in found["cautions"]),
                tuple(str(file) for file in found["files"]),
            )
        except (TypeError, KeyError, RecursionError) as error:
            raise ValueError(f"is no answer of a look: {error!r}") from error
