"""A slow, plain parser of rollouts over decoded characters, written apart from the fast one.

It walks by recursive descent where the fast one keeps a stack over lexemes, and asks its questions
on pairs where the fast one asks a dict. Both must agree on every rollout.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.stage2.parse.pieces import TokenPieces

SPACE = " \t\n\r\f\v"
SPELLINGS = {f"<|coord_{k}|>": k for k in range(1000)}
STRUCTURE = '"{}[]:,'


@dataclass
class Reading:
    """What the reference found."""

    invalid: bool = False
    truncated: bool = False
    prefix: str = "{"
    entries: list[tuple[str | None, str | None, str | None, tuple[int, ...] | None]] = field(
        default_factory=list
    )
    """(key, drop, desc, box) of every finished entry."""
    max_index: int = 0


def characters_of(ids: Sequence[int], pieces: TokenPieces) -> tuple[str, list[int]]:
    """The decoded text, and for each character the index of the token that finished it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text, owner = "", []
    for index, token_id in enumerate(ids):
        new = decoder.decode(pieces.of(token_id), final=index == len(ids) - 1)
        text += new
        owner += [index] * len(new)
    return text, owner


def read(ids: Sequence[int], pieces: TokenPieces) -> Reading:
    """The reference answer for one rollout."""
    picture = next((at for at, one in enumerate(ids) if one in pieces.placeholders), None)
    ids = ids[:picture]
    text, owner = characters_of(ids, pieces)
    stop = text.find("<|im_end|>")
    text = text if stop < 0 else text[:stop]
    opening = find_object(text)
    if opening is None:
        return Reading(invalid=True)
    spans, closed, cut = read_body(text, opening)
    result = Reading(truncated=not closed, prefix=text[:cut])
    for key, start, end in spans:
        if end > cut:
            break
        coords = [
            i
            for i in range(start, end)
            if ids[owner[i]] in pieces.coord_bins and is_in_list(text[start:i])
        ]
        result.entries.append(judge(key, text, start, end, coords, owner))
        number = re.fullmatch(r"object_([1-9][0-9]*)", key or "", re.ASCII)
        if number:
            result.max_index = max(result.max_index, int(number[1]))
    return result


def find_object(text: str) -> int | None:
    """The first `{` in no list; outside objects a quote is a character like any other.

    It is asked of each `{` in turn how many lists are open before it, objects inside them skipped.
    """
    lists = i = 0
    while i < len(text):
        if text[i] == "{" and not lists:
            return i
        if text[i] == "{":
            after = skip_object(text, i)
            if after is None:
                return None
            i = after
            continue
        lists = max(0, lists + {"[": 1, "]": -1}.get(text[i], 0))
        i += 1
    return None


def skip(text: str, i: int) -> int | None:
    """Behind the string, list or object that starts at i, or behind one character."""
    if text[i] == '"':
        return skip_string(text, i)
    if text[i] == "[":
        return skip_list(text, i)
    if text[i] == "{":
        return skip_object(text, i)
    return i + 1


def skip_string(text: str, i: int) -> int | None:
    i += 1
    while i < len(text):
        if text[i] == "\\":
            i += 2
        elif text[i] == '"':
            return i + 1
        else:
            i += 1
    return None


def skip_object(text: str, i: int) -> int | None:
    i += 1
    while i < len(text):
        if text[i] == "}":
            return i + 1
        after = skip(text, i)
        if after is None:
            return None
        i = after
    return None


def skip_list(text: str, i: int) -> int | None:
    """Behind its `]`, or at the `}` of the object around it, which ends it too."""
    i += 1
    while i < len(text):
        if text[i] == "]":
            return i + 1
        if text[i] == "}":
            return i
        after = skip(text, i)
        if after is None:
            return None
        i = after
    return None


Span = tuple[str | None, int, int]


def read_body(  # noqa: C901, PLR0912 - one loop, to be read beside the contract
    text: str, opening: int
) -> tuple[list[Span], bool, int]:
    """The values of the object at `opening`, whether it closes, and where to cut."""
    spans: list[Span] = []
    cut = i = opening + 1
    key: str | None = None
    colon = False
    while i < len(text):
        character = text[i]
        if character == "}":
            return spans, True, cut
        if character in SPACE + ":,]":
            i += 1
            continue
        if character not in STRUCTURE:
            after: int | None = i
            while after is not None and after < len(text) and text[after] not in SPACE + STRUCTURE:
                after += 1
        else:
            after = skip(text, i)
        if after is None:
            return spans, False, cut
        if character == '"':
            follows = text[after:].lstrip(SPACE).startswith(":")
            if colon and follows:
                spans.append((key, i, i))
            if follows or not colon:
                key, colon = loads(text[i:after]), follows
                key = key if isinstance(key, str) else None
            else:
                spans.append((key, i, after))
                key, colon = None, False
        elif character == "{":
            spans.append((key, i, after))
            key, colon, cut = None, False, after
        elif colon and not (character == "[" and text[after - 1] != "]"):
            spans.append((key, i, after))
            key, colon = None, False
        i = after
    return spans, False, cut


def loads(span: str) -> Any:
    """The JSON value with objects as lists of pairs; an exception object for no JSON."""

    def refuse(name: str) -> Any:
        raise ValueError(name)

    try:
        return json.loads(span, object_pairs_hook=Pairs, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        return error


class Pairs(list[tuple[str, Any]]):
    """A JSON object as its pairs."""


def judge(  # noqa: PLR0911 - one question of the contract a return
    key: str | None, text: str, start: int, end: int, coords: Sequence[int], owner: Sequence[int]
) -> tuple[str | None, str | None, str | None, tuple[int, ...] | None]:
    """The contract's questions, in its order."""
    pairs = loads(text[start:end])
    if not isinstance(key, str) or not re.fullmatch(r"object_[1-9][0-9]*", key, re.ASCII):
        return key, "key_invalid", None, None
    if not isinstance(pairs, Pairs):
        return key, "key_invalid", None, None
    names = [name for name, _ in pairs]
    desc = dict(pairs).get("desc")
    others = [name for name in names if name != "desc"]
    if not isinstance(desc, str) or desc.strip() == "":
        return key, "missing_desc", None, None
    if not others:
        return key, "missing_geom", None, None
    if "bbox_2d" not in others and "poly" not in others:
        return key, "unknown_geom", None, None
    if len(others) != 1 or len(names) != 2:
        return key, "key_invalid", None, None
    if others == ["poly"]:
        return key, "poly_unsupported", None, None
    return key, *judge_box(dict(pairs)["bbox_2d"], desc, text, coords, owner)


def judge_box(
    values: Any, desc: str, text: str, coords: Sequence[int], owner: Sequence[int]
) -> tuple[str | None, str | None, tuple[int, ...] | None]:
    if type(values) is not list or len(values) != 4:
        return "wrong_arity", None, None
    if any(type(value) in (list, Pairs) for value in values):
        return "wrong_arity", None, None
    if any(type(value) is not str or value not in SPELLINGS for value in values):
        return "non_coord_token", None, None
    tokens = sorted({owner[i] for i in coords if whole_string(text, owner, i)})
    if len(tokens) != 4:
        return "wrong_arity", None, None
    x1, y1, x2, y2 = (SPELLINGS[value] for value in values)
    if x2 < x1 or y2 < y1:
        return "bbox_invalid", None, None
    return None, desc, (x1, y1, x2, y2)


def is_in_list(before: str) -> bool:
    """Whether a list is open behind this beginning of an entry."""
    return before.rfind("[") > before.rfind("]")


def whole_string(text: str, owner: Sequence[int], i: int) -> bool:
    """Whether the token that character i belongs to stands between two quotes, alone."""
    first = last = i
    while owner[first - 1] == owner[i]:
        first -= 1
    while last + 1 < len(text) and owner[last + 1] == owner[i]:
        last += 1
    return text[first - 1] == '"' and text[last + 1 : last + 2] == '"'
