"""Records: the training data as written in a file, each one read and judged once.

A JSONL has one JSON object a line: `images` (paths, relative to the file), `objects`, and
optionally `width`, `height`, `messages` (the prompt) and `crowd` (regions whose objects nobody drew
one by one). ms-swift's spelling of them is read as it is meant there, and `assistant_payload` (the
answer as it is to be written) where there are no `objects`; COCO's one JSON is read too (`coco`). A
record that cannot be trained on stops the run here, with line, field and remedy. Knows no tokenizer
and decodes no picture.
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
from engine.contract.sources.coco import coco_values
from engine.contract.sources.ground_truth import (
    GroundTruthError,
    GTObject,
    payload_objects,
    read_objects,
)
from engine.contract.sources.picture_size import picture_size
from engine.contract.sources.swift_objects import is_swift, own_objects
from engine.contract.stage2.record_form import JSONL, RecordForm


@dataclass(frozen=True, slots=True)
class Record:
    """One picture with its objects."""

    where: str
    """File and line, for messages."""
    images: tuple[Path, ...]
    objects: tuple[GTObject, ...]
    """None of a picture on which there is nothing to find."""
    size: tuple[int, int]
    """Width and height in pixels of the picture that the boxes were drawn on."""
    messages: tuple[Mapping[str, Any], ...] = ()
    """The prompt's turns when the record brings its own."""
    crowd: tuple[GTObject, ...] = ()
    """Regions of many objects that are not to be found one by one; nothing trains on them, and the
    detection bench calls no prediction in them wrong."""


def read_records(path: Path, limit: int | None = None, form: RecordForm = JSONL) -> list[Record]:
    """Every record of a file. Raises GroundTruthError at the first one that breaks a rule."""
    found = list(each_record(path, limit, form=form))
    some(len(found), sum(len(one.objects) for one in found), path)
    return found


MOST_BAD = 20
"""Bad records after which a file is read no further."""


def each_record(
    path: Path,
    limit: int | None = None,
    bad: list[GroundTruthError] | None = None,
    form: RecordForm = JSONL,
) -> Iterator[Record]:
    """One after the other, none of them kept.

    Raises GroundTruthError; with `bad` what is wrong with a record goes there instead, and the
    next one is read.
    """
    followed = functools.cache(Path.resolve)
    values = coco_values(path, form.image_dirs) if form.source == "coco" else _lines(path, limit)
    for where, load in itertools.islice(values, limit):
        try:
            record = _record(load(), where, path.parent, followed)
        except GroundTruthError as error:
            if bad is None:
                raise
            bad.append(error)
            if len(bad) == MOST_BAD:
                return
            continue
        yield record


def read_record(value: Mapping[str, Any], where: str, folder: Path) -> Record:
    """A record that somebody else loaded. `folder`: what its pictures' paths are relative to.

    Raises GroundTruthError.
    """
    return _record(value, where, folder, Path.resolve)


def require_good(bad: Sequence[GroundTruthError]) -> None:
    """Raises the first, with the lines of the others."""
    if not bad:
        return
    first, *others = bad
    if not others:
        raise first
    lines = ", ".join(error.where.rpartition(" ")[2] for error in others)
    more = f"(lines {lines} cannot be trained on either"
    more += ", nor perhaps later ones)" if len(bad) == MOST_BAD else ")"
    raise GroundTruthError(first.where, first.field, f"{first.problem} {more}", first.remedy)


def some(records: int, objects: int, path: Path) -> None:
    """Raises GroundTruthError for a file without a record, or without an object in any of them."""
    if not records:
        raise GroundTruthError(path.name, "records", "are none", "write one JSON object a line")
    if not objects:
        problem = f"are none in all {records} records: there is nothing to find"
        raise GroundTruthError(path.name, "objects", problem, "name records that have some")


def _lines(path: Path, limit: int | None) -> Iterator[tuple[str, Callable[[], Any]]]:
    try:
        for number, line in lines(path, MAX_ROWS_BYTES if limit is None else None):
            where = f"{path.name} line {number}"
            yield where, functools.partial(_loaded, line, where)
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
    images = tuple(
        _image(folder / image, f"images[{i}]", where, followed)
        for i, image in enumerate(_named(value, where))
    )
    size = _size(value, images[0], where)
    if is_swift(value.get("objects")):
        value = {**value, "objects": own_objects(value["objects"], size, where)}
    elif value.get("objects") is None and value.get("assistant_payload") is not None:
        value = {**value, "objects": payload_objects(value["assistant_payload"], where)}
    objects = read_objects(value, where)
    messages = _messages(value, len(images), where)
    return Record(where, images, objects, size, messages, _crowd(value, where))


def _crowd(value: Mapping[str, Any], where: str) -> tuple[GTObject, ...]:
    return read_objects(value, where, "crowd") if value.get("crowd") else ()


_MOST_PIXELS = 2**31
"""No picture is as wide: a number from here on is a slip, and arithmetic with it overflows."""


def _size(value: Mapping[str, Any], image: Path, where: str) -> tuple[int, int]:
    """As the record says; where it says nothing, the first picture's own."""
    if value.get("width") is None and value.get("height") is None:
        try:
            found = picture_size(image)
        except OSError as error:
            reason = f"{image} cannot be read: {error.strerror}"
            raise GroundTruthError(where, "images[0]", reason, "name a readable picture") from error
        if found is None:
            reason = f"is missing, and the head of {image.name} does not say it"
            remedy = "give width and height in pixels"
            raise GroundTruthError(where, "width", reason, remedy)
        return found
    return _pixels(value, "width", where), _pixels(value, "height", where)


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
    """Paths, also one alone, under `image`, and as `{"path": …}`."""
    given = value.get("image") if value.get("images") is None else value["images"]
    listed = given if isinstance(given, list) else [given]
    found = [one.get("path") if isinstance(one, Mapping) else one for one in listed]
    paths = [path for path in found if isinstance(path, str)]
    if not paths or len(paths) < len(listed):
        holds = any(isinstance(one, Mapping) and one.get("bytes") for one in listed)
        what = "hold the picture itself" if holds else f"{str(given)[:80]!r} is no list of paths"
        remedy = "save it as a file and name that" if holds else "name a picture"
        raise GroundTruthError(where, "images", what, remedy)
    return paths


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


def _messages(value: Mapping[str, Any], pictures: int, where: str) -> tuple[Mapping[str, Any], ...]:
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
    return _with_pictures([turn for turn in turns if turn["role"] != "assistant"], pictures, where)


_PICTURE = "<image>"
_FILLED_IN = ("<ref-object>", "<bbox>")
"""What ms-swift writes objects in place of."""


def _with_pictures(
    turns: Sequence[Mapping[str, Any]], pictures: int, where: str
) -> tuple[Mapping[str, Any], ...]:
    """Each `<image>` in a text as the part that it stands for; a picture that no turn names stands
    in front of the first user's text, as ms-swift has it.
    """
    split = [{**turn, "content": _parts(turn["content"])} for turn in turns]
    for i, turn in enumerate(split):
        for part in turn["content"]:
            for word in _FILLED_IN:
                if word in str(part.get("text", "")):
                    problem = f"holds {word}, which is filled in by ms-swift alone"
                    raise GroundTruthError(where, f"messages[{i}].content", problem, "write it out")
    named = sum(_is_picture(part) for turn in split for part in turn["content"])
    if named > pictures:
        problem = f"ask for {named} pictures, images has {pictures}"
        raise GroundTruthError(where, "messages", problem, "name each picture once")
    asked = next((turn for turn in split if turn["role"] == "user"), None)
    if asked is not None:
        asked["content"] = [{"type": "image"}] * (pictures - named) + asked["content"]
    return tuple(
        plain if all(part.get("type") == "text" for part in turn["content"]) else turn
        for plain, turn in zip(turns, split, strict=True)
    )


def _parts(content: str | Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    if not isinstance(content, str):
        return [
            made
            for part in content
            for made in (_parts(part["text"]) if isinstance(part.get("text"), str) else [part])
        ]
    found: list[Mapping[str, Any]] = []
    for i, text in enumerate(content.split(_PICTURE)):
        found += [{"type": "image"}] if i else []
        found += [{"type": "text", "text": text}] if text else []
    return found


def _is_picture(part: Mapping[str, Any]) -> bool:
    """What chat templates put a picture's placeholder in place of."""
    return part.get("type") in ("image", "image_url") or "image" in part or "image_url" in part


def _is_content(given: Any) -> bool:
    """What chat templates read as the content of a turn."""
    if isinstance(given, str):
        return True
    return isinstance(given, list) and all(isinstance(part, Mapping) for part in given)
