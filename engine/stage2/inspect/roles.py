"""Roles: what each token of a target says and whose it is, for people who look at a rollout.

Knows no weight; training reads those of `target` and needs no role.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from engine.stage2.parse.parser import JudgedEntry, ParsedRollout
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.target.judge import JudgedRollout
from engine.stage2.target.match import Match
from engine.stage2.target.payload import Mark, Part, encode_marked, render
from engine.stage2.target.segments import appendix, outermost_brace, reordered, stretch_of_each


class Source(StrEnum):
    """Whose a token is."""

    PREFIX = "prefix"
    """Kept from the rollout, outside its entries."""
    FRAME = "frame"
    """Written by us, outside the entries."""
    MATCHED = "matched"
    FALSE_POSITIVE = "FP"
    DROPPED = "dropped"
    MISSING = "FN"


class Role(NamedTuple):
    """What a token says and whose it is."""

    part: Part
    source: Source
    owner: int | None = None
    """Which entry of its text it belongs to, from 0."""


STOP = Role(Part.STOP, Source.FRAME)
"""The token of the outermost brace, and `<|im_end|>`."""


def y_train_roles(rollout: JudgedRollout, pieces: TokenPieces) -> tuple[Role, ...]:
    """One role per token of `target.y_train`; without the last, of B2's assistant part."""
    parsed = rollout.parsed
    marks = _prefix_marks(parsed)
    kept_roles = _of_marks(marks, _prefix_sources(parsed, rollout.found), Source.PREFIX)
    kept = stretch_of_each(
        pieces.of_all(parsed.prefix_ids),
        [mark.end for mark in marks],
        [mark.part for mark in marks],
    ).tolist()
    appended = appendix(rollout)
    added_roles = _of_marks(
        appended.marks, [Source.MISSING] * len(rollout.found.missing), Source.FRAME
    )
    *added, _ = stretch_of_each(
        pieces.of_all(encode_marked(pieces, appended)), appended.ends, appended.parts
    ).tolist()
    roles = [*(kept_roles[mark] for mark in kept), *(added_roles[mark] for mark in added)]
    return (*roles, STOP, STOP)  # the token of the closing brace, and the end


def b3_roles(rollout: JudgedRollout, pieces: TokenPieces) -> tuple[Role, ...]:
    """One role per assistant token of B3, its end included."""
    found = rollout.found
    rendered = render([rollout.gt[j] for j in reordered(found)])
    whose = [Source.MATCHED] * len(found.pairs) + [Source.MISSING] * len(found.missing)
    roles = _of_marks(rendered.marks, whose, Source.FRAME)
    parts = pieces.of_all(encode_marked(pieces, rendered))
    stretches = stretch_of_each(parts, rendered.ends, rendered.parts)
    of_token = [roles[stretch] for stretch in stretches.tolist()]
    closing = outermost_brace(parts)
    assert closing is not None, "a rendered payload is a whole object"
    of_token[closing] = STOP
    return (*of_token, STOP)


def _of_marks(marks: Sequence[Mark], whose: Sequence[Source], rest: Source) -> list[Role]:
    """The role of each mark: `whose` each owner is, `rest` for marks without one."""
    return [
        Role(mark.part, rest if mark.owner is None else whose[mark.owner], mark.owner)
        for mark in marks
    ]


def _prefix_sources(parsed: ParsedRollout, found: Match) -> list[Source]:
    """Whose each entry of the prefix is."""
    paired = {i for i, _ in found.pairs}
    sources: list[Source] = []
    prediction = 0
    for entry in parsed.entries:
        if entry.prediction is None:
            sources.append(Source.DROPPED)
            continue
        sources.append(Source.MATCHED if prediction in paired else Source.FALSE_POSITIVE)
        prediction += 1
    return sources


def _prefix_marks(parsed: ParsedRollout) -> tuple[Mark, ...]:
    """Marks that cover the prefix: the frame around the entries, and the parts inside them."""
    marks = [Mark(0, parsed.opening, Part.TEXT)]
    for owner, entry in enumerate(parsed.entries):
        marks.append(Mark(marks[-1].end, entry.span.key_start, Part.STRUCTURE))
        marks += _entry_marks(owner, entry, marks[-1].end)
    marks.append(Mark(marks[-1].end, len(parsed.prefix), Part.STRUCTURE))
    return tuple(mark for mark in marks if mark.start < mark.end)


def _entry_marks(owner: int, entry: JudgedEntry, start: int) -> list[Mark]:
    inner = [(*bounds, Part.COORD) for bounds in entry.span.list_strings if entry.prediction]
    if entry.span.desc:
        inner.append((*entry.span.desc, Part.DESC))
    marks: list[Mark] = []
    for first, last, part in sorted(inner):
        marks += [Mark(start, first, Part.STRUCTURE, owner), Mark(first, last, part, owner)]
        start = last
    return [*marks, Mark(start, entry.span.end, Part.STRUCTURE, owner)]
