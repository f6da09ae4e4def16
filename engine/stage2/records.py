"""Records: the training data as written in a JSONL, each line read and judged once.

One JSON object a line: `images` (paths, relative to the file), `objects`, `width`, `height`, and
optionally `messages` (the prompt). A record that cannot be trained on stops the run here, with
line, field and remedy. Knows no tokenizer and decodes no picture.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.stage2.ground_truth import GroundTruthError, GTObject, read_objects


@dataclass(frozen=True, slots=True)
class Record:
    """One picture with its objects."""

    where: str
    """File and line, for messages."""
    images: tuple[Path, ...]
    objects: tuple[GTObject, ...]
    messages: tuple[Mapping[str, Any], ...] = ()
    """The prompt's turns when the record brings its own."""


def read_records(path: Path, limit: int | None = None) -> list[Record]:
    """Every record of a file. Raises GroundTruthError at the first one that breaks a rule."""
    found = [
        _record(value, f"{path.name} line {number}", path.parent)
        for number, value in itertools.islice(_lines(path), limit)
    ]
    if not found:
        raise GroundTruthError(str(path), "records", "are none", "write one JSON object a line")
    return found


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        with path.open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield number, _loaded(line, f"{path.name} line {number}")
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        raise GroundTruthError("", str(path), reason, "name a readable JSONL file") from error
    except UnicodeDecodeError as error:
        raise GroundTruthError("", str(path), "is no UTF-8 text", "save it as UTF-8") from error


def _loaded(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        problem = "is not JSON"
        raise GroundTruthError(where, "record", problem, "write one JSON object a line") from None


def _record(value: Any, where: str, folder: Path) -> Record:
    if not isinstance(value, Mapping):
        raise GroundTruthError(
            where, "record", "is not a JSON object", "write one JSON object a line"
        )
    objects = read_objects(value, where)
    if not objects:
        raise GroundTruthError(where, "objects", "are none", "leave the record out")
    for name in ("width", "height"):
        size = value.get(name)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise GroundTruthError(where, name, f"{size!r} is no size", "give it in pixels")
    return Record(where, _images(value, where, folder), objects, _messages(value, where))


def _images(value: Mapping[str, Any], where: str, folder: Path) -> tuple[Path, ...]:
    given = value.get("images")
    if not isinstance(given, list) or not given or not all(isinstance(i, str) for i in given):
        raise GroundTruthError(where, "images", f"{given!r} is no list of paths", "name a picture")
    paths = tuple((folder / image).resolve() for image in given)
    for i, path in enumerate(paths):
        if not path.is_file():
            raise GroundTruthError(
                where, f"images[{i}]", f"{path} does not exist", "correct the path"
            )
    return paths


def _messages(value: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], ...]:
    """The prompt's turns; an assistant's answer in them is left out: `objects` says it."""
    given: Any = value.get("messages")
    if given is None:
        return ()
    turns: Sequence[Any] = given if isinstance(given, list) else [None]
    for i, turn in enumerate(turns):
        if not isinstance(turn, Mapping) or not isinstance(turn.get("role"), str):
            raise GroundTruthError(
                where, f"messages[{i}]", "is no turn", "give it a role and a content"
            )
    return tuple(turn for turn in turns if turn["role"] != "assistant")
