"""A JSONL file: opened, one line as its value or what is wrong with it, and written whole.

Knows no field.
"""

from __future__ import annotations

import errno
import json
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO


def opened(path: Path) -> TextIO:
    """To be read as text. Raises OSError, also for a pipe or a device, which may have no end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    return path.open(encoding="utf-8-sig")  # editors on Windows write a mark in front


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


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """JSON Lines, the whole file at once: a step done again replaces its rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8"
    )
    temporary.replace(path)
