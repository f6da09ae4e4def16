"""Records: the training data as written in a JSONL, each line read and judged once.

One JSON object a line: `images` (paths, relative to the file), `objects`, `width`, `height`, and
optionally `messages` (the prompt). A record that cannot be trained on stops the run here, with
line, field and remedy. Knows no tokenizer and decodes no picture.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.contract.documents import MAX_ROWS_BYTES, UnreadableError, lines, parse_json, why
from engine.contract.sources.ground_truth import GroundTruthError, GTObject, read_objects


@dataclass(frozen=True, slots=True)
class Record:
    """One picture with its objects."""

    where: str
    """File and line, for messages."""
    images: tuple[Path, ...]
    objects: tuple[GTObject, ...]
    size: tuple[int, int]
    """Width and height in pixels of the picture that the boxes were drawn on."""
    messages: tuple[Mapping[str, Any], ...] = ()
    """The prompt's turns when the record brings its own."""


def read_records(path: Path, limit: int | None = None) -> list[Record]:
    """Every record of a file. Raises GroundTruthError at the first one that breaks a rule."""
    found = list(each_record(path, limit))
    some(len(found), path)
    return found


def each_record(path: Path, limit: int | None = None) -> Iterator[Record]:
    """One after the other, none of them kept. Raises GroundTruthError."""
    followed = functools.cache(Path.resolve)
    for number, value in itertools.islice(_lines(path, limit), limit):
        yield _record(value, f"{path.name} line {number}", path.parent, followed)


def some(count: int, path: Path) -> None:
    """Raises GroundTruthError for a file without a record."""
    if not count:
        raise GroundTruthError(path.name, "records", "are none", "write one JSON object a line")


def _lines(path: Path, limit: int | None) -> Iterator[tuple[int, Any]]:
    try:
        for number, line in lines(path, MAX_ROWS_BYTES if limit is None else None):
            yield number, _loaded(line, f"{path.name} line {number}")
    except OSError as error:
        remedy = "name a readable JSONL file in UTF-8, one JSON object a line"
        raise GroundTruthError("", path.name, why(error), remedy) from None


def _loaded(line: str, where: str) -> Any:
    try:
        return parse_json(line)
    except UnreadableError as error:
        raise GroundTruthError(
            where, "record", str(error), "write one JSON object a line"
        ) from None


def _record(value: Any, where: str, folder: Path, followed: Callable[[Path], Path]) -> Record:
    if not isinstance(value, Mapping):
        raise GroundTruthError(
            where, "record", "is not a JSON object", "write one JSON object a line"
        )
    objects = read_objects(value, where)
    if not objects:
        raise GroundTruthError(where, "objects", "are none", "leave the record out")
    size = (_pixels(value, "width", where), _pixels(value, "height", where))
    images = tuple(
        _image(folder / image, f"images[{i}]", where, followed)
        for i, image in enumerate(_named(value, where))
    )
    return Record(where, images, objects, size, _messages(value, where))


_MOST_PIXELS = 2**31
"""No picture is as wide: a number from here on is a slip, and arithmetic with it overflows."""


def _pixels(value: Mapping[str, Any], field: str, where: str) -> int:
    given = value.get(field)
    if isinstance(given, float) and given.is_integer():
        given = int(given)  # as a table with a gap in that column writes it
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise GroundTruthError(where, field, f"{given!r} is no size", "give it in pixels")
    if given >= _MOST_PIXELS:
        raise GroundTruthError(where, field, "is no size of a picture", "give it in pixels")
    return given


def _named(value: Mapping[str, Any], where: str) -> Sequence[str]:
    given = value.get("images")
    if not isinstance(given, list) or not given or not all(isinstance(i, str) for i in given):
        raise GroundTruthError(where, "images", f"{given!r} is no list of paths", "name a picture")
    return given


def _image(path: Path, field: str, where: str, followed: Callable[[Path], Path]) -> Path:
    """As `Path.resolve` says, with the folder, the same for many, followed once."""
    try:
        found = path.resolve() if path.is_symlink() else followed(path.parent) / path.name
    except (ValueError, OSError, RuntimeError):  # a null byte, half a surrogate pair, a loop
        raise GroundTruthError(
            where, field, f"{str(path)!r} is no path", "correct the path"
        ) from None
    if not found.is_file():
        what = "is a folder" if found.is_dir() else "does not exist"
        raise GroundTruthError(where, field, f"{found} {what}", "correct the path")
    return found


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
        try:
            json.dumps(turn, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise GroundTruthError(
                where, f"messages[{i}]", "is not valid Unicode", "remove the lone surrogate"
            ) from None
        if turn["role"] != "assistant" and not _is_content(turn.get("content")):
            raise GroundTruthError(
                where,
                f"messages[{i}].content",
                "is neither text nor a list of parts",
                'write text, or parts like {"type": "text", "text": …}',
            )
    return tuple(turn for turn in turns if turn["role"] != "assistant")


def _is_content(given: Any) -> bool:
    """What chat templates read as the content of a turn."""
    if isinstance(given, str):
        return True
    return isinstance(given, list) and all(isinstance(part, Mapping) for part in given)
