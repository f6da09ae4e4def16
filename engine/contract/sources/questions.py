"""One source of questions, and its rows where it is a JSONL file.

A row that cannot be trained on is named with its line before anything is queued. Knows no model
and no split.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import Field, field_validator

from engine.contract.asked import asked
from engine.contract.documents import MAX_ROWS_BYTES, UnreadableError, lines, parse_json, why
from engine.contract.errors import RLLoopError
from engine.contract.golds.survey import GoldSurvey, Unfit
from engine.contract.paths import located
from engine.contract.section import Section
from engine.contract.sources.file_looks import once_a_file

EMBEDDED_TASKS = {"embedded:addition": 10_000, "embedded:word_problems": 2_000}
"""Data sets generated on the spot, with their number of rows."""
EMBEDDED_ANSWER = "18"
"""What all of their answers look like."""


_NO_FILE = ("embedded:", "mixture:")


class SourceConfig(Section):
    """Rows of one origin, and what of them is used."""

    source: str = "embedded:addition"
    """`embedded:addition`, `embedded:word_problems`, or a JSONL file with one question a line."""
    prompt_field: str = "prompt"
    """Key of the question in a JSONL row: a text, or a chat that ends with the user's turn."""
    answer_field: str = "answer"
    """Key of the expected answer in a JSONL row: a text, a number, or the object that the
    verifier reads (docs/verifiers.md), taken as its JSON text."""
    solution_field: str = "solution"
    """Key of a worked answer in a JSONL row; rows may go without (see `format.demonstration`)."""
    id_field: str = "id"
    """Key of a row's stable id, a text or a whole number; a row without one, or with an empty one,
    is named by its line number."""
    limit: int | None = Field(None, ge=1)
    """Use only the first so many rows."""

    @field_validator("source")
    @classmethod
    def _absolute(cls, source: str) -> str:
        return source if source.startswith(_NO_FILE) else str(located(source))


class Corpus(NamedTuple):
    """What is known of a JSONL file without keeping a row of it."""

    rows: int
    unfit: Sequence[Unfit] = ()
    """What the verifiers asked about cannot read or never pay."""
    alike: bool = False
    """Whether all rows ask the same question."""
    longest: int | None = None
    """Bytes of its longest prompt; None where nobody looked."""


@once_a_file
def survey(path: Path, data: SourceConfig, verifiers: Sequence[str] = ()) -> Corpus:
    """Look at every row once, for each verifier. Raises RLLoopError as `read_rows` does."""
    rows = longest = 0
    first, alike = None, True
    golds = [GoldSurvey(name) for name in verifiers]
    for rows, row in enumerate(_rows(path, data), 1):
        longest = max(longest, len(row["prompt"].encode()))
        if alike:
            first = first or asked(row["prompt"])
            alike = asked(row["prompt"]) == first
        for gold in golds:
            gold.add(rows, row["id"][:_SHOWN], row["answer"])
    unfit = tuple(unfit for gold in golds for unfit in gold.found())
    return Corpus(rows, unfit, alike, longest)


def read_rows(path: Path, data: SourceConfig) -> list[dict[str, Any]]:
    """A JSONL file as [{id, prompt, answer, messages, columns}], and `solution` where there is one.

    `messages` is the prompt where it is a conversation, `columns` the whole row. Raises RLLoopError
    with the line that is wrong.
    """
    rows = list(_rows(path, data))
    named = {row["id"] for row in rows if not isinstance(row["id"], _Line)}
    for row in rows if named else ():
        if isinstance(row["id"], _Line) and row["id"] in named:
            row["id"] = f"line {row['id']}"
            while row["id"] in named:
                row["id"] += "'"
    return rows


class _Line(str):
    """The number of the line of a row that has no id."""

    __slots__ = ()


def _rows(path: Path, data: SourceConfig) -> Iterator[dict[str, Any]]:
    seen: dict[str, int] = {}
    number = 0
    try:
        written = lines(path, MAX_ROWS_BYTES if data.limit is None else None)
        for number, line in itertools.islice(written, data.limit):
            row = _row(line, number, data)
            if not isinstance(row["id"], _Line):
                _check_id(row["id"], number, seen)
            yield row
    except OSError as error:
        remedy = "name a readable JSONL file in UTF-8, one JSON object a line"
        raise RLLoopError.of("data.source", str(path), why(error), remedy) from None
    except _BadRowError as bad:
        problem = f"line {number}: {bad.problem}"
        raise RLLoopError.of("data.source", str(path), problem, bad.remedy) from None


class _BadRowError(Exception):
    """A row that cannot be trained on."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem, self.remedy = problem, remedy


def _row(line: str, number: int, data: SourceConfig) -> dict[str, Any]:
    try:
        value = parse_json(line, real=_Written)
    except UnreadableError as error:
        raise _BadRowError(str(error), "write one JSON object a line") from None
    if not isinstance(value, dict):
        raise _BadRowError("is not a JSON object", "write one JSON object a line")
    row = {
        "id": _id(value, data.id_field, number),
        "prompt": _question(value, data.prompt_field),
        "answer": _answer(value, data.answer_field),
    }
    solution = value.get(data.solution_field)
    if solution and isinstance(solution, str):
        row["solution"] = solution
    for name, text in row.items():
        _check_unicode(name, text)
    asked = value[data.prompt_field]
    return {
        **row,
        "messages": asked if isinstance(asked, list) else None,
        "columns": _numbers(value),
    }


def _numbers(value: Any) -> Any:
    """Plain numbers, as whoever reads the file with another tool gets them."""
    match value:
        case float():
            return float(value)
        case dict():
            return {key: _numbers(inner) for key, inner in value.items()}
        case list():
            return [_numbers(inner) for inner in value]
    return value


def _id(row: Mapping[str, Any], key: str, number: int) -> str:
    match row.get(key):
        case None | "":
            return _Line(number)
        case str() as text:
            return text
        case (int() | float()) as given if not isinstance(given, bool) and given == int(given):
            return str(int(given))  # 3.0 is what became of 3 in a column with an empty cell
    raise _BadRowError(
        f"has no id under {key!r}: {_instead(row, key)}",
        "write a text or a whole number, or set data.id_field",
    )


class _Written(float):
    """A number of a row, with the text that it was written as: 1e-05 is another text."""

    text: str

    def __new__(cls, text: str) -> Self:
        found = super().__new__(cls, text)
        found.text = text
        return found


def _question(row: Mapping[str, Any], key: str) -> str:
    match row.get(key):
        case [*turns] if all(map(_is_turn, turns)) and turns and turns[-1]["role"] == "user":
            return "\n\n".join(turn["content"] for turn in turns)  # as TRL and verl have it
        case list():
            raise _BadRowError(
                f"has a list under {key!r} that is no conversation which ends with the user's turn",
                'write one text, or turns like {"role": "user", "content": "…"}; the roles are '
                "system, user and assistant, and each content is a text",
            )
    return _text(row, key, "data.prompt_field")


def _is_turn(turn: Any) -> bool:
    match turn:
        case {"role": "system" | "user" | "assistant", "content": str(text)}:
            return bool(text.strip())
    return False


def _answer(row: Mapping[str, Any], key: str) -> str:
    match row.get(key):
        case dict() as fields:  # what verifiers of more than one answer read
            return json.dumps(fields, ensure_ascii=False)
        case list():
            raise _BadRowError(
                f"has no text under {key!r}: it is a list",
                "write one answer, as text, or the object that the verifier reads; "
                "or set data.answer_field",
            )
    return _text(row, key, "data.answer_field")


def _text(row: Mapping[str, Any], key: str, setting: str) -> str:
    match row.get(key):
        case bool():
            pass
        case _Written() as number if number.is_integer() and abs(number) < _LONG:
            return str(int(Decimal(number.text)))  # what became of one beside an empty cell
        case _Written() as number:
            return number.text
        case int() as number:
            return str(number)
        case str() as text if text:
            return text
    raise _BadRowError(
        f"has no text under {key!r}: {_instead(row, key)}", f"add it, or set {setting}"
    )


_SHOWN = 200
_LONG = 1e30
"""A whole number from here on keeps its text instead of all its zeros."""


def _instead(row: Mapping[str, Any], key: str) -> str:
    """What a row holds where a text was looked for."""
    if key not in row:
        fields = ", ".join(map(repr, itertools.islice(row, 8)))
        return f"its fields are {fields}" if fields else "the row is empty"
    match row[key]:
        case list():
            return "it is a list"
        case dict():
            return "it is an object"
        case "":
            return "it is empty"
        case other:
            return f"it is {json.dumps(other)}"


def _check_id(id_: str, number: int, seen: dict[str, int]) -> None:
    if seen.setdefault(id_, number) != number:
        problem = f"id {id_!r} stands in line {seen[id_]} too"
        raise _BadRowError(problem, "give each row an id of its own")


def _check_unicode(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ascii(text[error.start])
        raise _BadRowError(
            f"its {name} holds {half}, half of a surrogate pair, which no tokenizer reads",
            "write it as valid Unicode",
        ) from None
