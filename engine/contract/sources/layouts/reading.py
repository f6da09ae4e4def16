"""What a layout tells of rows: which column is what, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.contract.golds.boxes import gold_text, last_boxed
from engine.contract.sources.bad_rows import BadRowError
from engine.contract.sources.values import Columns, cell, instead


@dataclass(frozen=True)
class Part:
    """One of question, answer and worked solution."""

    column: str
    """Its name; dotted inside another."""
    made: Callable[[Any, Columns], Any] | None = None
    """Of the column's value and the whole row; None takes the value as it is. May raise
    BadRowError."""

    def of(self, row: Columns) -> Any:
        """None where the row has no such column."""
        try:
            value = cell(row, self.column)
        except KeyError:
            return None
        return value if self.made is None or value is None else self.made(value, row)


@dataclass(frozen=True)
class Reading:
    """How the rows of one source are read."""

    layout: str
    title: str
    """`verl rows`."""
    prompt: Part
    answer: Part | None
    """None where rows have none, and only reward functions can judge."""
    solution: Part | None = None
    ids: Sequence[str] = ("id",)
    """Columns that may hold a stable id, the first that is there."""
    asks_once: bool = False
    """Whether a question that stands there twice is one row, whatever the answers: they hold more
    than what is right."""

    @property
    def columns(self) -> Sequence[str]:
        """Those that question and answer come from."""
        return [part.column for part in (self.prompt, self.answer) if part is not None]


def has(row: Columns, *names: str) -> bool:
    """Whether the row has all of these columns, whatever they hold."""
    for name in names:
        try:
            cell(row, name)
        except KeyError:
            return False
    return True


def first_of(row: Columns, names: Sequence[str]) -> str | None:
    """The first of these columns that the row has."""
    return next((name for name in names if has(row, name)), None)


def hashed(value: Any, row: Columns) -> Any:
    r"""What follows `####` in a GSM8K answer, thousands without their commas.

    >>> hashed("9 * 200 = 1800\n#### 1,800", {})
    '1800'
    """
    if not isinstance(value, str) or "####" not in value:
        raise BadRowError(
            f"has no #### in its answer: {instead(value, row, 'answer')}",
            "write the number behind ####, or set data.answer_field to take the answer as it is",
        )
    return _without_commas(value.rpartition("####")[2].strip())


def boxed(value: Any, row: Columns) -> Any:
    r"""What the last `\boxed{}` of a solution holds.

    >>> boxed(r"so $\boxed{\frac{1}{2}}$", {})
    '\\frac{1}{2}'
    """
    found = last_boxed(value) if isinstance(value, str) else None
    if found is None or not found.strip():
        raise BadRowError(
            f"has no \\boxed{{}} in its solution: {instead(value, row, 'solution')}",
            "write the answer in a box, or set data.answer_field to the column that has it",
        )
    return found.strip()


def final(value: Any, row: Columns) -> Any:
    r"""A gold that may be a worked answer: `#### 18` and `\boxed{18}` are 18, all else as it is."""
    del row
    if not isinstance(value, str) or value.lstrip().startswith(("{", "[")):
        return value
    if "####" in value:
        return _without_commas(gold_text(value))
    return gold_text(value) if "\\boxed" in value else value


def _without_commas(number: str) -> str:
    plain = number.replace(",", "")
    return plain if plain.lstrip("+-$").replace(".", "", 1).isdigit() else number
