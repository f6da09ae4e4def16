"""Questions: where they come from, as one list. Knows no model and no split."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from engine.contract.asked import asked_hash
from engine.contract.errors import RLLoopError
from engine.contract.sources.generated import is_generated, task_of
from engine.contract.sources.indexed import IndexedRows, indexed, is_indexed
from engine.contract.sources.questions import SourceConfig, own_ids, with_own_ids
from engine.contract.sources.rows import Row, Rows
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
    source: str = field(default="", compare=False)
    """The part of a mixture that it is from; empty where the corpus is one source."""
    verifier: str = field(default="", compare=False)
    """Who judges it; empty where the run's own rewards do."""
    draw: int | None = field(default=None, compare=False)
    """Which draw of the curriculum this is, counted from 0; None for a row nobody drew.

    Names the random numbers of its completions, and tells what fades with the steps how far
    the run is.
    """
    again: int = field(default=0, compare=False)
    """How often the same draw has had this row already: its samples are numbered on from those."""

    def but(self, **changes: Any) -> Question:
        """The same row with another id, source, verifier or draw."""
        return replace(self, **changes)


class IndexedQuestion(Question):
    """A row that stays in its file: what it asks and holds is read whenever it is asked for."""

    __slots__ = ("_number", "_rows", "again", "draw", "id", "source", "verifier")
    _number: int
    _rows: IndexedRows

    def __init__(self, rows: IndexedRows, number: int, **own: Any) -> None:
        """`own`: an id and what else is not in the row."""
        for name, value in (_OWN | own | {"_rows": rows, "_number": number}).items():
            object.__setattr__(self, name, value)  # as the dataclass does, being frozen

    def but(self, **changes: Any) -> IndexedQuestion:
        """Without reading it."""
        own = {name: getattr(self, name) for name in ("id", *_OWN)}
        return IndexedQuestion(self._rows, self._number, **own | changes)

    @property
    def prompt(self) -> str:
        return self._row.prompt

    @property
    def answer(self) -> str:
        return self._row.answer

    @property
    def solution(self) -> str | None:
        return self._row.solution

    @property
    def messages(self) -> Sequence[Mapping[str, str]] | None:
        return self._row.messages

    @property
    def columns(self) -> Mapping[str, Any]:
        return _IndexedColumns(self._rows, self._number)

    @property
    def _row(self) -> Row:
        return self._rows.row(self._number)


_OWN: dict[str, Any] = {"source": "", "verifier": "", "draw": None, "again": 0}


class _IndexedColumns(Mapping[str, Any]):
    """The columns of a row that stays in its file."""

    def __init__(self, rows: IndexedRows, number: int) -> None:
        self._rows, self._number = rows, number

    def __getitem__(self, name: str) -> Any:
        if name not in self._rows.names:
            raise KeyError(name)
        return self._rows.row(self._number).columns.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows.names)

    def __len__(self) -> int:
        return len(self._rows.names)


@dataclass(frozen=True)
class BenchRow(Question):
    """A row of a caller's own bench: a question for the loop, and what it was for the caller's
    seams, which read it by its own names (`task["text"]`, `task.text`).
    """

    row: Any = field(default=None, compare=False)

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]

    def get(self, name: str, default: Any = None) -> Any:
        """As of a dict."""
        return self.columns.get(name, default)

    def __getattr__(self, name: str) -> Any:
        """What a question does not have itself."""
        if name.startswith("__") or name in {"row", "columns"}:
            raise AttributeError(name)
        return self.columns[name] if name in self.columns else getattr(self.row, name)


_PROMPT_NAMES = ("prompt", "question", "problem", "input", "text")
_ANSWER_NAMES = ("answer", "expected", "gold", "target", "reference", "solution")
_ID_NAMES = ("id", "qid", "question_id", "uid", "name")


def questions_of(rows: Sequence[Any]) -> list[Question]:
    """Rows of any bench: questions as they are, dicts and objects by their usual names.

    Raises RLLoopError for a row without a prompt or an answer.
    """
    return [row if isinstance(row, Question) else _bench_row(row, i) for i, row in enumerate(rows)]


def _bench_row(row: Any, place: int) -> Question:
    columns = _columns_of(row)
    found = {
        what: next((columns[name] for name in names if columns.get(name) is not None), None)
        for what, names in (("prompt", _PROMPT_NAMES), ("answer", _ANSWER_NAMES))
    }
    for what, value in found.items():
        if value is None:
            names = _PROMPT_NAMES if what == "prompt" else _ANSWER_NAMES
            has = ", ".join(columns) or "nothing"
            problem = f"row {place} of the bench has no {what}: its fields are {has}"
            raise RLLoopError.of("bench", None, problem, f"name it one of: {', '.join(names)}")
    id_ = next((columns[name] for name in _ID_NAMES if columns.get(name) is not None), place)
    asked, answer = found["prompt"], found["answer"]
    return BenchRow(
        str(id_),
        asked if isinstance(asked, str) else str(asked),
        answer if isinstance(answer, str) else json.dumps(answer, default=str),
        columns=columns,
        row=row,
    )


def _columns_of(row: Any) -> dict[str, Any]:
    if isinstance(row, Mapping):
        return {str(name): value for name, value in row.items()}
    if is_dataclass(row) and not isinstance(row, type):
        return {one.name: getattr(row, one.name) for one in fields(row)}
    return dict(getattr(row, "__dict__", {}))


def numbered(questions: Sequence[Question]) -> dict[str, int]:
    """By a row's id, the place of the first row that asks the same.

    >>> rows = [Question("a", "Who?", "I"), Question("b", "Why?", "so"), Question("c", "who", "I")]
    >>> numbered(rows)
    {'a': 0, 'b': 1, 'c': 0}
    """
    first: dict[int, int] = {}
    return {
        question.id: first.setdefault(asked_hash(question.prompt), place)
        for place, question in enumerate(questions)
    }


@dataclass(frozen=True)
class Bench:
    """A corpus with a name; the loop needs nothing of it but `questions`."""

    name: str
    questions: Sequence[Question]
    said: Sequence[str] = ()
    """How the rows were read and what was left out, a sentence each."""


def load(config: SourceConfig) -> Bench:
    """Raises RLLoopError when the source cannot be read."""
    generate = _EMBEDDED.get(config.source)
    if generate is not None:
        rows = generate()[: config.limit]
        return Bench(config.source.partition(":")[2], rows)
    found = Rows(config)
    rows = _indexed(found) if is_indexed(found.files) else _loaded(found)
    source = config.source
    name = task_of(source) if is_generated(source) else Path(source).stem
    return Bench(name, rows, [*found.said(), *found.left_out()])


def _indexed(rows: Rows) -> Sequence[Question]:
    index, ids, numbers = indexed(rows)
    named = zip(own_ids(ids), numbers, strict=True)
    return [IndexedQuestion(index, number, id=id_) for id_, number in named]


def _loaded(rows: Rows) -> Sequence[Question]:
    read = with_own_ids(list(rows))
    names = dict.fromkeys(name for row in read for name in row.columns)
    return [
        Question(
            row.id,
            row.prompt,
            row.answer,
            row.solution,
            messages=row.messages,
            columns={name: row.columns.get(name) for name in names},
        )
        for row in read
    ]


def _addition() -> Sequence[Question]:
    return [Question(*row) for row in addition.rows()]


def _word_problems() -> Sequence[Question]:
    return [Question(*row) for row in word_problems.rows()]


_EMBEDDED: Mapping[str, Callable[[], Sequence[Question]]] = {
    addition.SOURCE: _addition,
    word_problems.SOURCE: _word_problems,
}
