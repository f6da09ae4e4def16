"""Verifiers whose `expected` is more than one answer take it as JSON text; this reads it.

Knows no verifier's fields.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

_Kind = TypeVar("_Kind")


class ExpectedError(ValueError):
    """The dataset's `expected` cannot be used: the row is broken, not the completion."""


def read_expected(expected: str, *fields: str) -> dict[str, Any]:
    """The JSON object in `expected` with at least these fields. Raises ExpectedError.

    >>> read_expected('{"pattern": "a+"}', "pattern")
    {'pattern': 'a+'}
    """
    try:
        row = json.loads(expected)
    except (ValueError, RecursionError) as error:
        raise ExpectedError(f"expected is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ExpectedError(f"expected is {type(row).__name__}, not an object")
    missing = [field for field in fields if field not in row]
    if missing:
        raise ExpectedError(f"expected lacks {', '.join(missing)}; it has {', '.join(row)}")
    return row


def wanted(row: dict[str, Any], field: str, kind: type[_Kind], words: str) -> _Kind:
    """The field's value, of this type; `words` say what to write there. Raises ExpectedError.

    >>> wanted({"pattern": "a+"}, "pattern", str, "a text")
    'a+'
    """
    value = row[field]
    if not isinstance(value, kind):
        raise refused(field, value, words)
    return value


def texts(row: dict[str, Any], field: str, words: str) -> list[str]:
    """The field's list of texts, one at least. Raises ExpectedError."""
    value = wanted(row, field, list, words)
    if not value or not all(isinstance(item, str) for item in value):
        raise refused(field, value, words)
    return value


def refused(field: str, value: object, words: str) -> ExpectedError:
    """What is wrong with a field's value, and what to write instead."""
    return ExpectedError(f"{field} is {json.dumps(value, ensure_ascii=False)[:80]}; write {words}")
