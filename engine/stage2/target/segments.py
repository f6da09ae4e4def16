"""Target: the tokens to train on, and what each of them weighs.

A rollout gives at most two segments. B2 keeps the rollout's own tokens and appends the objects it
missed: it teaches geometry, on the coord slots of matched predictions alone. B3 is the ground
truth with the matched objects in predicted order: it teaches text, and leaves the decision to stop
alone by giving the outermost `}` and `<|im_end|>` no weight. Knows no tensor and no loss.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.contract.errors import NightlaneError
from engine.contract.sources.ground_truth import Box, GTObject
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.target.judge import JudgedRollout
from engine.stage2.target.match import Match
from engine.stage2.target.payload import Marked, Part, encode_marked, render, render_fragment


class CoordSlots(NamedTuple):
    """Four coord tokens to decode, and the box they should have said."""

    positions: tuple[int, int, int, int]
    """Indices of the coord tokens in the segment; their logits stand one position before."""
    box: Box


@dataclass(frozen=True, slots=True)
class Segment:
    """One teacher-forced sequence: prompt and assistant tokens, and what to learn from them."""

    ids: tuple[int, ...]
    ce_weights: tuple[float, ...]
    """One per token: weight of predicting this token from those before it."""
    slots: tuple[CoordSlots, ...]
    """Boxes with a geometry loss."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class CEWeights:
    """What cross-entropy weighs in B3; structure weighs 1."""

    desc: float
    """Description of an object the rollout missed."""
    desc_matched: float
    """Description of a matched object that the desc gate did not accept."""
    dropped_structure: float
    """Factor on structure when an entry of the rollout was dropped."""


@dataclass(frozen=True, slots=True)
class SampleTargets:
    """What one rollout becomes."""

    b2: Segment | None
    """None without a matched pair: there is no geometry to learn."""
    b3: Segment


class AppendError(NightlaneError):
    """A prefix that no entry can be appended to."""


def fragment(prefix: bytes, objects: Sequence[GTObject], first_index: int) -> Marked:
    """The text that completes `prefix`: `objects` as entries, and the closing brace.

    Raises AppendError when the prefix ends in neither `{`, `}` nor `,`, or in a `,` that nothing
    would follow.

    >>> fragment(b'{"object_1": {}', [], 2).text
    '}'
    """
    last = prefix.rstrip()[-1:]
    if last not in (b"{", b"}", b","):
        shown = last.decode(errors="replace")
        raise AppendError(
            f"a prefix that ends in {shown!r} cannot be appended to; cut it behind a brace"
        )
    if last == b"," and not objects:
        raise AppendError("nothing follows the prefix's last comma; cut it behind a brace")
    return render_fragment(", " if last == b"}" and objects else "", objects, first_index)


def appendix(rollout: JudgedRollout) -> Marked:
    """The missing objects in ground truth's order, as the text that completes the prefix."""
    missing = [rollout.gt[j] for j in rollout.found.missing]
    return fragment(rollout.parsed.prefix, missing, rollout.parsed.max_index + 1)


def y_train(rollout: JudgedRollout, pieces: TokenPieces) -> tuple[int, ...]:
    """Prefix + missing objects + `<|im_end|>` as assistant tokens; numbers never collide."""
    appended = encode_marked(pieces, appendix(rollout))
    return (*rollout.parsed.prefix_ids, *appended, pieces.end_id)


def y_gt_canonical(gt: Sequence[GTObject]) -> str:
    """The ground truth in its own order: what stage 1 was trained on."""
    return render(gt).text


def y_gt_reordered(gt: Sequence[GTObject], found: Match) -> str:
    """Matched objects in predicted order, then the missing ones; false positives are left out."""
    return render([gt[j] for j in reordered(found)]).text


def reordered(found: Match) -> list[int]:
    """Indices of the objects as B3 names them."""
    return [*(j for _, j in found.pairs), *found.missing]


def build_targets(
    prompt_ids: Sequence[int], rollout: JudgedRollout, weights: CEWeights, pieces: TokenPieces
) -> SampleTargets:
    """The segments of one rollout."""
    b2 = _b2(prompt_ids, rollout, pieces) if rollout.found.pairs else None
    return SampleTargets(b2, _b3(prompt_ids, rollout, weights, pieces))


_BRACE = re.compile(rb'(?:[^"{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|")*+([{}]|\Z)', re.DOTALL)
_DEEPER: Mapping[bytes, int] = {b"{": 1, b"}": -1, b"": 0}


def outermost_brace(parts: Sequence[bytes]) -> int | None:
    """Index of the token piece with the `}` that closes the outermost object, by brace depth.

    Braces inside strings do not count. None when the object does not close.
    """
    text = b"".join(parts)
    depth = 0
    for found in _BRACE.finditer(text):
        depth += _DEEPER[found[1]]
        if depth == 0 and found[1] == b"}":
            return _piece_that_ends(parts, len(text) - found.end())
    return None


def _piece_that_ends(parts: Sequence[bytes], behind: int) -> int:
    """Index of the first piece with at most `behind` bytes behind it; sought from the end."""
    index = len(parts) - 1
    while index and len(parts[index]) <= behind:
        behind -= len(parts[index])
        index -= 1
    return index


def stretch_of_each(
    pieces: Sequence[bytes], ends: Sequence[int], parts: Sequence[Part]
) -> NDArray[np.intp]:
    """Index of the stretch that each token piece lies in; of several, that of highest precedence.

    `ends` are the ends of the stretches in bytes and `parts` what they say. They cover the text
    of the pieces, so each piece meets at least one.
    """
    behind = np.fromiter(map(len, pieces), np.int64, len(pieces)).cumsum()
    bounds = np.array(ends, np.int64)
    found = np.searchsorted(bounds, behind, side="left")
    firsts = np.searchsorted(bounds, np.concatenate([[0], behind[:-1]]), side="right")
    (shared,) = np.nonzero(firsts < found)
    for index, first, last in zip(
        shared.tolist(), firsts[shared].tolist(), found[shared].tolist(), strict=True
    ):
        found[index] = max(range(first, last + 1), key=lambda stretch: parts[stretch].rank)
    return found


def _b2(prompt_ids: Sequence[int], rollout: JudgedRollout, pieces: TokenPieces) -> Segment:
    ids = y_train(rollout, pieces)[:-1]  # no CE here, so the end teaches nothing
    offset = len(prompt_ids)
    predictions = rollout.parsed.predictions
    slots = []
    for i, j in rollout.found.pairs:
        p1, p2, p3, p4 = predictions[i].coord_positions
        positions = (offset + p1, offset + p2, offset + p3, offset + p4)
        slots.append(CoordSlots(positions, rollout.gt[j].box))
    return Segment((*prompt_ids, *ids), (0.0,) * (offset + len(ids)), tuple(slots))


def _b3(
    prompt_ids: Sequence[int], rollout: JudgedRollout, weights: CEWeights, pieces: TokenPieces
) -> Segment:
    rendered = render([rollout.gt[j] for j in reordered(rollout.found)])
    ids = encode_marked(pieces, rendered)
    parts = pieces.of_all(ids)
    of_stretch = np.array(_ce_weights(rendered, rollout, weights))
    of_token = of_stretch[stretch_of_each(parts, rendered.ends, rendered.parts)].tolist()
    closing = outermost_brace(parts)
    assert closing is not None, "a rendered payload is a whole object"
    of_token[closing] = 0.0
    return Segment(
        (*prompt_ids, *ids, pieces.end_id), (*[0.0] * len(prompt_ids), *of_token, 0.0), ()
    )


def _ce_weights(text: Marked, rollout: JudgedRollout, weights: CEWeights) -> list[float]:
    """Weight of each stretch: coordinates are taught by geometry, stopping by nobody."""
    structure = weights.dropped_structure if rollout.parsed.drops else 1.0
    desc = [0.0 if accepted else weights.desc_matched for accepted in rollout.accepted]
    desc += [weights.desc] * len(rollout.found.missing)
    return [
        structure if part is Part.STRUCTURE else 0.0 if part is Part.COORD else desc[owner or 0]
        for part, owner in zip(text.parts, text.owners, strict=True)
    ]
