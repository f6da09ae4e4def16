"""One line of a JSONL file as its value, or what is wrong with it in words. Knows no field."""

from __future__ import annotations

import json
from typing import Any


def loaded(line: str) -> Any:
    """Raises ValueError for what is not JSON, and for the constants that only Python writes.

    >>> loaded('{"answer": NaN}')
    Traceback (most recent call last):
    ValueError: is not JSON (NaN stands in it)
    """
    try:
        return json.loads(line, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON ({error.msg} at character {error.colno})") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON ({error})") from None


def _no_constant(name: str) -> float:
    # What a missing value becomes on its way through Python: as an answer, the word `nan`.
    raise ValueError(f"{name} stands in it")
