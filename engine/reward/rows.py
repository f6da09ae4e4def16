"""Verifiers whose `expected` is more than one answer take it as JSON text; this reads it.

Knows no verifier's fields.
"""

from __future__ import annotations

import json
from typing import Any


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
