"""Questions: where they come from, as one list. Knows no model and no split."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.contract.sources.questions import DataConfig, asked, read_rows
from engine.data import addition, word_problems


@dataclass(frozen=True)
class Question:
    """One row of a corpus."""

    id: str
    prompt: str
    answer: str
    solution: str | None = None
    """A worked answer in the wanted form, for examples and supervised training."""
    messages: Sequence[Mapping[str, str]] | None = field(default=None, compare=False)
    """The prompt as the conversation that the row has; None where it is a text."""
    columns: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The whole row by its own names, for reward functions; every row of a corpus has the same."""
    draw: int | None = field(default=None, compare=False)
    """Which draw of the curriculum this is, counted from 0; None for a row nobody drew.

    Names the random numbers of its completions, and tells what fades with the steps how far
    the run is.
    """


def numbered(questions: Sequence[Question]) -> dict[str, int]:
    """By a row's id, the place of the first row that asks the same.

    >>> rows = [Question("a", "Who?", "I"), Question("b", "Why?", "so"), Question("c", "who", "I")]
    >>> numbered(rows)
    {'a': 0, 'b': 1, 'c': 0}
    """
    first: dict[str, int] = {}
    return {
        question.id: first.setdefault(asked(question.prompt), place)
        for place, question in enumerate(questions)
    }


@dataclass(frozen=True)
class Bench:
    """A corpus with a name; the loop needs nothing of it but `questions`."""

    name: str
    questions: Sequence[Question]


def load(config: DataConfig) -> Bench:
    """Raises RLLoopError when a JSONL file cannot be read."""
    generate = _EMBEDDED.get(config.source)
    if generate is not None:
        rows = generate()[: config.limit]
        return Bench(config.source.partition(":")[2], rows)
    path = Path(config.source)
    rows_read = read_rows(path, config)
    names = dict.fromkeys(name for row in rows_read for name in row["columns"])
    return Bench(path.stem, [_question(row, names) for row in rows_read])


def _question(row: Mapping[str, Any], names: Collection[str]) -> Question:
    return Question(
        row["id"],
        row["prompt"],
        row["answer"],
        row.get("solution"),
        messages=row["messages"],
        columns={name: row["columns"].get(name) for name in names},
    )


def _addition() -> Sequence[Question]:
    return [Question(*row) for row in addition.rows()]


def _word_problems() -> Sequence[Question]:
    return [Question(*row) for row in word_problems.rows()]


_EMBEDDED: Mapping[str, Callable[[], Sequence[Question]]] = {
    addition.SOURCE: _addition,
    word_problems.SOURCE: _word_problems,
}
