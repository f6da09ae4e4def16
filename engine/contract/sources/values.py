"""Values of a row as the texts that a run works with: question, answer, id. Knows no layout."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, Self

from engine.contract.sources.bad_rows import BadRowError

Columns = Mapping[str, Any]
"""A row by its own names."""

_LONG = 1e30
"""A whole number from here on keeps its text instead of all its zeros."""
_SHOWN = 60
"""Letters of a value that is shown in an error."""


class Written(float):
    """A number of a row, with the text that it was written as: 1e-05 is another text."""

    text: str

    def __new__(cls, text: str) -> Self:
        found = super().__new__(cls, text)
        found.text = text
        return found


class Line(str):
    """The number of the line of a row that has no id."""

    __slots__ = ()


def plain(value: Any) -> Any:
    """As JSON would have it: what tables hold beside it becomes text, a number that is none null.

    >>> plain({"day": date(2026, 1, 2), "share": float("nan"), "ids": (1, 2)})
    {'day': '2026-01-02', 'share': None, 'ids': [1, 2]}
    """
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value if value is None or isinstance(value, int | str) else _as_text(value)


def _as_text(value: Any) -> Any:
    match value:
        case date() | time():
            return value.isoformat()
        case bytes():
            return f"<{len(value)} bytes>"
        case timedelta():
            return value.total_seconds()
    return str(value)


def cell(row: Columns, name: str) -> Any:
    """What stands under a name, `extra_info.level` inside `extra_info`. KeyError without it.

    >>> cell({"extra_info": {"level": 3}}, "extra_info.level")
    3
    """
    if name in row:
        return row[name]
    first, dot, rest = name.partition(".")
    inner = row[first] if dot else None
    if not isinstance(inner, Mapping):
        raise KeyError(name)
    return cell(inner, rest)


def question(value: Any, row: Columns, name: str) -> tuple[str, Sequence[Mapping[str, str]] | None]:
    """The question as one text, and as a conversation where it is one. Raises BadRowError."""
    match value:
        case [*turns] if all(map(_is_turn, turns)) and turns and turns[-1]["role"] == "user":
            return "\n\n".join(turn["content"] for turn in turns), turns  # as TRL and verl have it
        case list():
            raise BadRowError(
                f"has a list under {name!r} that is no conversation which ends with the user's "
                "turn",
                'write one text, or turns like {"role": "user", "content": "…"}; the roles are '
                "system, user and assistant, and each content is a text",
            )
    return text(value, row, name, "data.prompt_field"), None


def _is_turn(turn: Any) -> bool:
    match turn:
        case {"role": "system" | "user" | "assistant", "content": str(said)}:
            return bool(said.strip())
    return False


def answer(value: Any, row: Columns, name: str) -> str:
    """The expected answer as one text, an object as its JSON. Raises BadRowError."""
    match value:
        case dict() as fields:  # what verifiers of more than one answer read
            return json.dumps(fields, ensure_ascii=False)
        case list():
            raise BadRowError(
                f"has no text under {name!r}: it is a list",
                "write one answer, as text, or the object that the verifier reads; "
                "or set data.answer_field",
            )
    return text(value, row, name, "data.answer_field")


def text(value: Any, row: Columns, name: str, setting: str) -> str:
    """One text, a number as it was written. Raises BadRowError."""
    match value:
        case bool():
            pass
        case float() as number if not math.isfinite(number):
            pass
        case float() as number if number.is_integer() and abs(number) < _LONG:
            return str(int(Decimal(_written(number))))  # what became of one beside an empty cell
        case float() as number:
            return _written(number)
        case int() as number:
            return str(number)
        case str() as said if said:
            return said
    raise BadRowError(
        f"has no text under {name!r}: {instead(value, row, name)}", f"add it, or set {setting}"
    )


def _written(number: float) -> str:
    return number.text if isinstance(number, Written) else repr(number)


def id_of(row: Columns, name: str, number: int) -> str:
    """The row's own id, else the number of its line. Raises BadRowError."""
    try:
        value = cell(row, name)
    except KeyError:
        value = None
    match value:
        case None | "":
            return Line(number)
        case str() as said:
            return said
        case (int() | float()) as given if not isinstance(given, bool) and given == int(given):
            return str(int(given))  # 3.0 is what became of 3 in a column with an empty cell
    raise BadRowError(
        f"has no id under {name!r}: {instead(value, row, name)}",
        "write a text or a whole number, or set data.id_field",
    )


def instead(value: Any, row: Columns, name: str) -> str:
    """What a row holds where a text was looked for."""
    match value:
        case None if not _has(row, name):
            return _names(row)
        case list():
            return "it is a list"
        case dict():
            return "it is an object"
        case "":
            return "it is empty"
        case float() if not math.isfinite(value):
            return f"it is {value}"
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return f"it is {shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + '…'}"


def _has(row: Columns, name: str) -> bool:
    try:
        cell(row, name)
    except KeyError:
        return False
    return True


def _names(row: Columns) -> str:
    """The columns there are."""
    fields = ", ".join(repr(key[:_SHOWN]) for key in itertools.islice(row, 12))
    more = f" and {len(row) - 12} more" if len(row) > 12 else ""
    return f"its fields are {fields}{more}" if fields else "the row is empty"


def check_unicode(name: str, said: str) -> None:
    """Raises BadRowError for half a surrogate pair."""
    try:
        said.encode()
    except UnicodeEncodeError as error:
        half = ascii(said[error.start])
        raise BadRowError(
            f"its {name} holds {half}, half of a surrogate pair, which no tokenizer reads",
            "write it as valid Unicode",
        ) from None
