"""Parse: a rollout's token ids → the objects it names, and the prefix that can be appended to.

Strict and token-aligned: nothing is repaired, the prefix keeps the rollout's own tokens, and only
the token that the cut goes through is written anew. An answer ends where a picture's placeholder
stands in it: the model would look for a picture there. Every finished entry is either a prediction
or dropped for one of eight reasons. Total: any list of ids gives an answer. Knows no ground truth.
"""

from __future__ import annotations

import bisect
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn

from engine.contract.sources.ground_truth import STOP_TEXT, Box
from engine.contract.stage2 import coords
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.parse.scan import Entry, Scan, scan


class Drop(StrEnum):
    """Why an entry is no prediction, in the order of the questions asked."""

    KEY_INVALID = "key_invalid"
    MISSING_DESC = "missing_desc"
    MISSING_GEOM = "missing_geom"
    UNKNOWN_GEOM = "unknown_geom"
    POLY_UNSUPPORTED = "poly_unsupported"
    WRONG_ARITY = "wrong_arity"
    NON_COORD_TOKEN = "non_coord_token"  # noqa: S105 - a bucket's name
    BBOX_INVALID = "bbox_invalid"


class Prediction(NamedTuple):
    """An entry that names an object."""

    desc: str
    box: Box
    coord_positions: tuple[int, int, int, int]
    """Indices of its four coord tokens in the rollout, and so in the prefix."""


class JudgedEntry(NamedTuple):
    """A finished entry with its verdict: `prediction`, or the reason in `drop`."""

    key: str | None
    span: Entry
    prediction: Prediction | None
    drop: Drop | None


@dataclass(frozen=True, slots=True)
class ParsedRollout:
    """What one rollout says."""

    prefix_ids: tuple[int, ...]
    """The rollout up to its last finished entry, else up to its `{`; `{` alone when invalid."""
    prefix: bytes
    """The text of `prefix_ids`; its last byte is `{` or `}`."""
    entries: tuple[JudgedEntry, ...]
    """Every finished entry in order of appearance."""
    invalid: bool
    """No `{` opens an object at top level."""
    truncated: bool
    """The rollout ended before its object closed."""
    opening: int
    """Offset of the `{` in the prefix."""
    max_index: int
    """Largest N of the `object_N` keys in the prefix, dropped entries too; 0 for none."""

    @property
    def predictions(self) -> tuple[Prediction, ...]:
        """In order of appearance: the predicted order."""
        return tuple(e.prediction for e in self.entries if e.prediction is not None)

    @property
    def drops(self) -> Counter[Drop]:
        """How many entries were dropped for each reason."""
        return Counter(e.drop for e in self.entries if e.drop is not None)


def parse(ids: Sequence[int], pieces: TokenPieces) -> ParsedRollout:
    """Judge a rollout. `ids` are the response's tokens, with or without `<|im_end|>`."""
    if not pieces.placeholders.isdisjoint(ids):
        ids = ids[: next(at for at, one in enumerate(ids) if one in pieces.placeholders)]
    parts = pieces.of_all(ids)
    text = b"".join(parts).split(STOP_TEXT.encode(), 1)[0]
    ends = list(itertools.accumulate(map(len, parts)))
    found = scan(text)
    cut = _cut(found, ids, parts, ends, pieces)
    if cut is None:
        ids_of_brace = pieces.encode("{")
        return ParsedRollout(
            ids_of_brace, b"{", (), invalid=True, truncated=False, opening=0, max_index=0
        )
    at, prefix_ids = cut
    tokens = _Tokens(ids, ends, pieces)
    entries = tuple(_judge(e, text, tokens) for e in found.entries if e.end <= at)
    return ParsedRollout(
        prefix_ids,
        text[:at],
        entries,
        invalid=False,
        truncated=found.closing is None,
        opening=found.opening or 0,
        max_index=max((_index(e.key) for e in entries), default=0),
    )


def strict_drop_metrics(rollouts: Iterable[ParsedRollout], of: str) -> dict[str, float]:
    """The counters of a step's entries; every reason is always there, 0 included. `of`: what their
    series begin with.
    """
    valid = 0
    drops: Counter[Drop] = Counter()
    for rollout in rollouts:
        valid += len(rollout.predictions)
        drops += rollout.drops
    root = f"{of}/strict_drop"
    return {
        f"{root}/N_valid_pred": float(valid),
        f"{root}/N_drop_invalid": float(drops.total()),
    } | {f"{root}/reason/{drop}": float(drops[drop]) for drop in Drop}


def rollout_metrics(rollouts: Sequence[ParsedRollout]) -> dict[str, float]:
    """How many rollouts a step had and how many were invalid; the share that was truncated."""
    count = len(rollouts)
    return {
        "stage2/raw_rollouts": float(count),
        "stage2/invalid_rollout": float(sum(r.invalid for r in rollouts)),
        "rollout/parse_truncated_rate": sum(r.truncated for r in rollouts) / max(count, 1),
    }


def _cut(
    found: Scan,
    ids: Sequence[int],
    parts: Sequence[bytes],
    ends: Sequence[int],
    pieces: TokenPieces,
) -> tuple[int, tuple[int, ...]] | None:
    """The last place to cut that the vocabulary can write: byte offset and prefix ids."""
    if found.opening is None:
        return None
    closed = (entry.end for entry in reversed(found.entries) if entry.is_object)
    for at in (*closed, found.opening + 1):
        last = bisect.bisect_left(ends, at)
        if ends[last] == at:
            return at, tuple(ids[: last + 1])
        kept = pieces.retokenise(parts[last][: at - ends[last]])
        if kept is not None:
            return at, (*ids[:last], *kept)
    return None


_KEY = re.compile(r"object_([1-9][0-9]*)", re.ASCII)
_MANY_DIGITS = 1000


def _index(key: str | None) -> int:
    """N of `object_N`, else 0; also 0 for an N of so many digits that no number comes near it."""
    found = _KEY.fullmatch(key) if key else None
    return int(found[1]) if found and len(found[1]) < _MANY_DIGITS else 0


@dataclass(frozen=True, slots=True)
class _Tokens:
    """Where each token of the rollout ends, to find the token of a span."""

    ids: Sequence[int]
    ends: Sequence[int]
    pieces: TokenPieces

    def coords(self, spans: Iterable[tuple[int, int]]) -> list[int]:
        """Indices of the coord tokens that are exactly one of `spans`, each between quotes."""
        ids, ends, bins = self.ids, self.ends, self.pieces.coord_bins
        found = []
        for start, end in spans:
            index = bisect.bisect_right(ends, start)
            if ends[index] == end and ids[index] in bins:  # it holds no quote: starts at `start`
                found.append(index)
        return found

    def box(self, x1: int, y1: int, x2: int, y2: int) -> Box:
        """The bins of four coord tokens by their indices."""
        ids, bins = self.ids, self.pieces.coord_bins
        return bins[ids[x1]], bins[ids[y1]], bins[ids[x2]], bins[ids[y2]]


def _judge(entry: Entry, text: bytes, tokens: _Tokens) -> JudgedEntry:
    key, desc, verdict = (_read_ours if entry.is_ours else _read)(entry, text)
    if isinstance(verdict, Drop):
        return JudgedEntry(key, entry, None, verdict)
    captured = tokens.coords(entry.list_strings)
    if len(captured) != 4:
        return JudgedEntry(key, entry, None, Drop.WRONG_ARITY)
    p1, p2, p3, p4 = captured
    box = x1, y1, x2, y2 = verdict or tokens.box(p1, p2, p3, p4)
    if x2 < x1 or y2 < y1:
        return JudgedEntry(key, entry, None, Drop.BBOX_INVALID)
    return JudgedEntry(key, entry, Prediction(desc, box, (p1, p2, p3, p4)), None)


_Reading = tuple[str | None, str, Drop | Box | None]
"""An entry's key, its description, and its four bins or the first reason to drop it; None for
bins that are those of the entry's coord tokens."""


def _read(entry: Entry, text: bytes) -> _Reading:
    key = _load(entry.key)
    key = key if isinstance(key, str) else None
    value = _load(text[entry.start : entry.end])
    verdict = _first_fault(key, value)
    return key, "" if isinstance(verdict, Drop) else value["desc"], verdict


def _read_ours(entry: Entry, text: bytes) -> _Reading:
    """What `_read` says of an entry in our own spelling, without a JSON parser."""
    assert entry.key is not None
    assert entry.desc is not None
    key = entry.key[1:-1].decode()
    desc = text[slice(*entry.desc)].decode(errors="replace")
    if not desc.strip():
        return key, desc, Drop.MISSING_DESC
    return key, desc, None


def _first_fault(key: str | None, value: Any) -> Drop | Box:
    """The first reason to drop the entry, or its four bins."""
    if key is None or not _KEY.fullmatch(key) or not isinstance(value, _Object):
        return Drop.KEY_INVALID
    desc = value.get("desc")
    if not isinstance(desc, str) or not desc.strip():
        return Drop.MISSING_DESC
    shapes = value.keys() - {"desc"}
    if not shapes & {"bbox_2d", "poly"}:
        return Drop.UNKNOWN_GEOM if shapes else Drop.MISSING_GEOM
    if len(shapes) > 1 or value.repeats_a_key:
        return Drop.KEY_INVALID
    return _bins(value["bbox_2d"]) if "bbox_2d" in shapes else Drop.POLY_UNSUPPORTED


def _bins(values: Any) -> Drop | Box:
    if not isinstance(values, list) or len(values) != 4:
        return Drop.WRONG_ARITY
    x1, y1, x2, y2 = [coords.bin_of(v) if isinstance(v, str) else None for v in values]
    if x1 is not None and y1 is not None and x2 is not None and y2 is not None:
        return x1, y1, x2, y2
    is_nested = any(isinstance(value, list | dict) for value in values)
    return Drop.WRONG_ARITY if is_nested else Drop.NON_COORD_TOKEN


class _Object(dict[str, Any]):
    """A JSON object that remembers whether a key stood in it twice."""

    repeats_a_key = False


def _object(members: list[tuple[str, Any]]) -> _Object:
    value = _Object(members)
    value.repeats_a_key = len(value) != len(members)
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse)


def _load(span: bytes | None) -> Any:
    """The JSON value of a span, None for what is no JSON."""
    try:
        return None if span is None else _DECODER.decode(span.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
