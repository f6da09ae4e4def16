"""Preflight: before the first step, each record is looked at as training will meet it.

A picture that cannot be decoded to its end, a question that asks for other pictures, a sequence
over `global_max_length`: all of them are found minutes after the start, and not one by one, each
at the hour of the night at which the schedule comes to it. Knows no weights.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from engine.contract.errors import ConfigProblem
from engine.contract.sources.ground_truth import GroundTruthError
from engine.contract.sources.records import Record
from engine.run.pace import advance, counted
from engine.run.stop import stop_asked
from engine.stage2.channel_a import answer_length
from engine.stage2.parse.pieces import TokenizerError
from engine.stage2.rollout.pictures import UNREADABLE, Seen, look_at
from engine.stage2.rollout.prompts import PromptReader, unreadable
from engine.stage2.target.payload import PayloadError

BATCH = 256
"""Records between two looks at the abort sentinel."""
TURNED = 1.2
"""A record's shape may differ from its picture's by such a factor: sides are rounded to patches."""

SHAPE_DIFFERS = "SHAPE_DIFFERS"
PICTURES_TURNED = "PICTURES_TURNED"
PICTURES_TRANSPARENT = "PICTURES_TRANSPARENT"
PICTURES_MOVE = "PICTURES_MOVE"
_ALERTS = {
    SHAPE_DIFFERS: "have boxes drawn on another shape than their picture's",
    PICTURES_TURNED: "show a picture with an EXIF orientation, which is not obeyed",
    PICTURES_TRANSPARENT: "show a picture that is transparent in places, which is laid on white",
    PICTURES_MOVE: "show a picture of several frames, of which the first alone is read",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with one record."""

    what: str
    remedy: str
    code: str | None = None
    """Of the alert that a person should hear; None: it cannot be trained on."""

    @property
    def stops(self) -> bool:
        """Whether it cannot be trained on."""
        return self.code is None


def look(
    records: Sequence[Record],
    reader: PromptReader,
    longest: int | None,
    *,
    taught: bool = True,
    rollout: int = 0,
) -> Iterator[Finding]:
    """In the order of the records. `longest`: tokens of a sequence; None where there is no limit.
    `taught`: the answers will be written by the tokenizer too. `rollout`: tokens that one may have
    of which the sequence must hold all, beside the whole answer at worst.

    Pictures are decoded by as many threads as there are cores. Ends early when the run is asked to
    stop, which then stops where it always does; the next attempt looks again.
    """
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)), "preflight")
    with pool, counted("look at records", len(records)):
        for first in range(0, len(records), BATCH):
            if stop_asked():
                return
            batch = records[first : first + BATCH]
            for record, seen in zip(batch, pool.map(_seen, batch), strict=True):
                advance()
                yield from _findings(record, seen, reader, longest, taught=taught, rollout=rollout)


def unfit(name: str, found: Sequence[Finding], count: int) -> list[ConfigProblem]:
    """One problem for all that stops the run, or none. `name` of the field, `count` of its records.

    >>> [one.line() for one in unfit("data", [Finding("a line 3: no", "mend it")], 9)]
    ['data: a line 3: no; mend it']
    """
    stops = [finding for finding in found if finding.stops]
    if not stops:
        return []
    rest = f" (and {len(stops) - 1} more of its {count} records, each in the log)"
    what = stops[0].what + (rest if len(stops) > 1 else "")
    return [ConfigProblem(name, None, what, stops[0].remedy)]


def alerts(name: str, found: Sequence[Finding], count: int) -> list[tuple[str, str]]:
    """(code, text) for a person, of the records that can be trained on all the same."""
    told = []
    for code, text in _ALERTS.items():
        heard = [finding for finding in found if finding.code == code]
        if heard:
            first = f"the first: {heard[0].what}; {heard[0].remedy}"
            told.append((code, f"{len(heard)} of the {count} records in {name} {text}, {first}"))
    return told


def require_length(record: Record, length: int, longest: int | None) -> None:
    """Raises GroundTruthError for a sequence of too many tokens: nothing is cut off silently."""
    if longest is not None and length > longest:
        raise GroundTruthError(
            record.where,
            "objects",
            f"make a sequence of {length} tokens",
            f"raise global_max_length {longest}, or split the record",
        )


def _require_room(record: Record, length: int, rollout: int, longest: int | None) -> None:
    """Raises GroundTruthError where a rollout could come to a segment that no pack takes."""
    if longest is not None and rollout and length + rollout > longest:
        raise GroundTruthError(
            record.where,
            "objects",
            f"make a segment of up to {length + rollout} tokens behind a rollout of {rollout}, and "
            f"no pack takes more than global_max_length {longest}",
            "lower max_new_tokens, raise global_max_length, or split the record",
        )


def _findings(
    record: Record,
    seen: list[Seen] | GroundTruthError,
    reader: PromptReader,
    longest: int | None,
    *,
    taught: bool,
    rollout: int,
) -> Iterator[Finding]:
    try:
        if isinstance(seen, GroundTruthError):
            raise seen
        prompt = reader.length(record, [one.size for one in seen])
        if taught:
            length = prompt + _answer_length(record, reader)
            require_length(record, length, longest)
            _require_room(record, length, rollout, longest)
    except GroundTruthError as error:
        yield Finding(error.what, error.remedy)
    else:
        yield from _turned(record, seen)
        yield from _shown_otherwise(record, seen)


def _answer_length(record: Record, reader: PromptReader) -> int:
    """Tokens. Raises GroundTruthError for a text that this tokenizer cannot write."""
    try:
        return answer_length(record.objects, reader.pieces)
    except PayloadError as error:
        raise GroundTruthError(record.where, "objects", error.problem, error.remedy) from error
    except TokenizerError as error:
        problem, _, remedy = str(error).partition("; ")
        told = f"cannot be taught: {problem}"
        raise GroundTruthError(record.where, "objects", told, remedy) from error


def _turned(record: Record, seen: Sequence[Seen]) -> Iterator[Finding]:
    """Boxes of an upright picture over one that lies: `width` and `height` tell, or its tag."""
    (said, said_high), (wide, high) = record.size, seen[0].size
    ratio = said * high / (said_high * wide)
    if len(seen) == 1 and not 1 / TURNED <= ratio <= TURNED:
        yield Finding(
            f"{record.where}: {said} × {said_high} in the record, {wide} × {high} in the picture",
            "save the pictures upright (an EXIF orientation is not obeyed), or correct the record",
            SHAPE_DIFFERS,
        )
        return
    lying = [path for path, one in zip(record.images, seen, strict=True) if one.turned]
    if lying:
        yield Finding(
            f"{record.where}: {lying[0]}",
            "where boxes were drawn on it upright, save the picture upright",
            PICTURES_TURNED,
        )


def _shown_otherwise(record: Record, seen: Sequence[Seen]) -> Iterator[Finding]:
    """What a picture shows that training does not see, or the other way round."""
    both = list(zip(record.images, seen, strict=True))
    for path in [path for path, one in both if one.transparent][:1]:
        yield Finding(
            f"{record.where}: {path}",
            "where something white is on it, save it on a ground of another colour",
            PICTURES_TRANSPARENT,
        )
    for path in [path for path, one in both if one.moves][:1]:
        yield Finding(
            f"{record.where}: {path}",
            "where boxes were drawn on another frame, save that frame alone",
            PICTURES_MOVE,
        )


def _seen(record: Record) -> list[Seen] | GroundTruthError:
    found = []
    for i, path in enumerate(record.images):
        try:
            found.append(look_at(path))
        except UNREADABLE as error:
            return unreadable(record, i, error)
    return found
