"""Section `data`: where the questions come from, and the rows of a corpus that is a JSONL file.

A row that cannot be trained on is named with its line before anything is queued. Knows no model
and no split.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from engine.contract.errors import RLLoopError
from engine.contract.file_looks import once_a_file
from engine.contract.jsonl import loaded
from engine.contract.paths import located
from engine.contract.rl.section import Section

EMBEDDED_TASKS = {"embedded:addition": 10_000, "embedded:word_problems": 2_000}
"""Data sets generated on the spot, with their number of rows."""


class DataConfig(Section):
    """Where the questions come from."""

    source: str = "embedded:addition"
    """`embedded:addition`, `embedded:word_problems`, or a JSONL file with one question a line."""
    prompt_field: str = "prompt"
    """Key of the question in a JSONL row."""
    answer_field: str = "answer"
    """Key of the expected answer in a JSONL row."""
    solution_field: str = "solution"
    """Key of a worked answer in a JSONL row; rows may go without (see `format.demonstration`)."""
    id_field: str = "id"
    """Key of a row's stable id; a row without one is named by its line number."""
    limit: int | None = Field(None, ge=1)
    """Use only the first so many rows."""

    @field_validator("source")
    @classmethod
    def _absolute(cls, source: str) -> str:
        return source if source.startswith("embedded:") else str(located(source))


@once_a_file
def count_rows(path: Path, data: DataConfig) -> int:
    """How many rows a corpus has. Raises RLLoopError as `read_rows` does."""
    return len(read_rows(path, data))


def read_rows(path: Path, data: DataConfig) -> list[dict[str, str]]:
    """A JSONL file as [{id, prompt, answer}]. Raises RLLoopError with the line that is wrong."""
    rows: list[dict[str, str]] = []
    seen: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8-sig") as stream:  # editors on Windows write a mark in front
            for number, line in enumerate(itertools.islice(stream, data.limit), 1):
                if not line.strip():
                    continue
                row = _row(path, number, line, data)
                if row["id"] in seen:
                    raise RLLoopError.of(
                        "data.source",
                        str(path),
                        f"line {number}: id {row['id']!r} stands in line {seen[row['id']]} too",
                        "give each row an id of its own",
                    )
                seen[row["id"]] = number
                rows.append(row)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RLLoopError.of(
            "data.source", str(path), f"cannot be read: {reason}", "name a readable JSONL file"
        ) from error
    return rows


def _row(path: Path, number: int, line: str, data: DataConfig) -> dict[str, str]:
    def wrong(problem: str, remedy: str) -> RLLoopError:
        return RLLoopError.of("data.source", str(path), f"line {number}: {problem}", remedy)

    try:
        value = loaded(line)
    except ValueError as error:
        raise wrong(str(error), "write one JSON object a line") from None
    if not isinstance(value, dict):
        raise wrong("is not a JSON object", "write one JSON object a line")
    row = {"id": str(value.get(data.id_field, number))}
    for name, key in (("prompt", data.prompt_field), ("answer", data.answer_field)):
        text = value.get(key)
        if isinstance(text, int | float) and not isinstance(text, bool):
            text = str(text)
        if not isinstance(text, str) or not text:
            problem = f"has no text under {key!r}: {_instead(value, key)}"
            raise wrong(problem, f"add it, or set data.{name}_field")
        row[name] = text
    solution = value.get(data.solution_field)
    if solution and isinstance(solution, str):
        row["solution"] = solution
    for name, text in row.items():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = ascii(text[error.start])
            raise wrong(
                f"its {name} holds {half}, half of a surrogate pair, which no tokenizer reads",
                "write it as valid Unicode",
            ) from None
    return row


def _instead(row: Mapping[str, Any], key: str) -> str:
    """What a row holds where a text was looked for."""
    if key not in row:
        fields = ", ".join(map(repr, itertools.islice(row, 8)))
        return f"its fields are {fields}" if fields else "the row is empty"
    match row[key]:
        case list():
            return "it is a list (of a chat's turns prompting.system_prompt is the first)"
        case dict():
            return "it is an object"
        case "":
            return "it is empty"
        case other:
            return f"it is {json.dumps(other)}"
