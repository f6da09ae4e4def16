"""Preflight: before the first step, each record is looked at as training will meet it.

A picture that cannot be decoded to its end, a question that asks for other pictures, a sequence
over `global_max_length`: all of them are found minutes after the start, and not one by one, each
at the hour of the night at which the schedule comes to it. Knows no weights.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from engine.contract.errors import ConfigProblem
from engine.contract.stage2.ground_truth import GroundTruthError
from engine.contract.stage2.records import Record
from engine.hooks import stop_asked
from engine.stage2.channel_a import answer_length
from engine.stage2.pictures import UNREADABLE, size_of
from engine.stage2.prompts import PromptReader, unreadable

BATCH = 256
"""Records between two looks at the abort sentinel."""
TURNED = 1.2
"""A record's shape may differ from its picture's by such a factor: sides are rounded to patches."""

SMALL = 700
"""Pixels of a picture's longer side: thousandths of it often go beyond, pixels of it never."""
ENOUGH = 100
"""Boxes on small pictures from which it can be told what they count."""
SHAPE_DIFFERS = "SHAPE_DIFFERS"
PIXEL_BOXES = "PIXEL_BOXES"

Sizes = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with one record."""

    what: str
    remedy: str
    stops: bool
    """Whether it cannot be trained on; else a person should know of it."""


def look(records: Sequence[Record], reader: PromptReader, longest: int | None) -> Iterator[Finding]:
    """In the order of the records. `longest`: tokens of a sequence; None where there is no limit.

    Pictures are decoded by as many threads as there are cores. Ends early when the run is asked to
    stop, which then stops where it always does; the next attempt looks again.
    """
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "preflight") as pool:
        for first in range(0, len(records), BATCH):
            if stop_asked():
                return
            batch = records[first : first + BATCH]
            for record, sizes in zip(batch, pool.map(_sizes, batch), strict=True):
                yield from _findings(record, sizes, reader, longest)


def unfit(name: str, found: Sequence[Finding], count: int) -> list[ConfigProblem]:
    """One problem for all that stops the run, or none. `name` of the field, `count` of its records.

    >>> [one.line() for one in unfit("data", [Finding("a line 3: no", "mend it", True)], 9)]
    ['data: a line 3: no; mend it']
    """
    stops = [finding for finding in found if finding.stops]
    if not stops:
        return []
    rest = f" (and {len(stops) - 1} more of its {count} records, each in the log)"
    what = stops[0].what + (rest if len(stops) > 1 else "")
    return [ConfigProblem(name, None, what, stops[0].remedy)]


def turned(name: str, found: Sequence[Finding], count: int) -> list[str]:
    """What a person should know of the records that can be trained on all the same, or nothing."""
    heard = [finding for finding in found if not finding.stops]
    if not heard:
        return []
    return [
        f"{len(heard)} of the {count} records in {name} have boxes drawn on another shape than "
        f"their picture's, the first: {heard[0].what}; {heard[0].remedy}"
    ]


def in_pixels(name: str, records: Iterable[Record]) -> list[str]:
    """What a person should know of boxes that look like pixels, or nothing."""
    boxes = 0
    for record in records:
        width, height = record.size
        if max(width, height) > SMALL:
            continue
        for one in record.objects:
            _, _, right, bottom = one.box
            if right > width or bottom > height:
                return []
            boxes += 1
    if boxes < ENOUGH:
        return []
    return [
        f"none of the {boxes} boxes in {name} on pictures of at most {SMALL} pixels reaches beyond "
        "its picture's width or height, so they look like pixels; boxes are thousandths of the "
        "picture here, 0 to 999: scale them"
    ]


def require_length(record: Record, length: int, longest: int | None) -> None:
    """Raises GroundTruthError for a sequence of too many tokens: nothing is cut off silently."""
    if longest is not None and length > longest:
        raise GroundTruthError(
            record.where,
            "objects",
            f"make a sequence of {length} tokens",
            f"raise global_max_length {longest}, or split the record",
        )


def _findings(
    record: Record, sizes: Sizes | GroundTruthError, reader: PromptReader, longest: int | None
) -> Iterator[Finding]:
    try:
        if isinstance(sizes, GroundTruthError):
            raise sizes
        prompt = reader.length(record, sizes)
        if longest is not None:
            answer = answer_length(record.objects, reader.pieces)
            require_length(record, prompt + answer, longest)
    except GroundTruthError as error:
        yield Finding(error.what, error.remedy, stops=True)
    else:
        yield from _turned(record, sizes)


def _turned(record: Record, sizes: Sizes) -> Iterator[Finding]:
    """Boxes of an upright picture over one that lies: `width` and `height` tell."""
    (said, said_high), (wide, high) = record.size, sizes[0]
    ratio = said * high / (said_high * wide)
    if len(sizes) == 1 and not 1 / TURNED <= ratio <= TURNED:
        yield Finding(
            f"{record.where}: {said} × {said_high} in the record, {wide} × {high} in the picture",
            "save the pictures upright (an EXIF orientation is not obeyed), or correct the record",
            stops=False,
        )


def _sizes(record: Record) -> Sizes | GroundTruthError:
    found = []
    for i, path in enumerate(record.images):
        try:
            found.append(size_of(path))
        except UNREADABLE as error:
            return unreadable(record, i, error)
    return found
