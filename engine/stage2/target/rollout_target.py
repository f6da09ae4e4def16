"""Target of `rollout_matching_sft`: one sequence a sample, in which everything else is a mask.

The rollout's own prefix, the objects that it missed, and the end. Of the prefix the boxes of
matched objects are learnt, towards the ground truth's values; of what is appended the structure by
cross-entropy, the boxes by their own values, and descriptions by a weight of their own. An invalid
rollout has the prefix `{`, which is not learnt. Knows no tensor and no loss.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.target.judge import JudgedRollout
from engine.stage2.target.payload import Part, encode_marked
from engine.stage2.target.segments import CoordSlots, Segment, appendix, stretch_of_each


def build_target(
    prompt_ids: Sequence[int], rollout: JudgedRollout, desc_weight: float, pieces: TokenPieces
) -> Segment:
    """Prompt, prefix, missing objects, end. A token that joins description and structure counts as
    description, and so does a coord token inside a description.
    """
    appended = appendix(rollout)
    tail = encode_marked(pieces, appended)
    prefix = rollout.parsed.prefix_ids
    stretches = stretch_of_each(pieces.of_all(tail), appended.ends, appended.parts)
    parts = [appended.parts[stretch] for stretch in stretches.tolist()]
    weight = {Part.STRUCTURE: 1.0, Part.DESC: desc_weight}
    weights = [weight.get(part, 0.0) for part in parts]
    begun = len(prompt_ids) + len(prefix)
    places = iter([begun + i for i, part in enumerate(parts) if part is Part.COORD])
    return Segment(
        (*prompt_ids, *prefix, *tail, pieces.end_id),
        (*[0.0] * begun, *weights, 1.0),
        (*_matched(len(prompt_ids), rollout), *_appended(places, rollout)),
    )


def _matched(offset: int, rollout: JudgedRollout) -> Iterator[CoordSlots]:
    """Boxes that the rollout wrote itself, and what they should have said."""
    predictions = rollout.parsed.predictions
    for i, j in rollout.found.pairs:
        p1, p2, p3, p4 = predictions[i].coord_positions
        places = (offset + p1, offset + p2, offset + p3, offset + p4)
        yield CoordSlots(places, rollout.gt[j].box)


def _appended(places: Iterator[int], rollout: JudgedRollout) -> Iterator[CoordSlots]:
    for j in rollout.found.missing:
        p1, p2, p3, p4 = itertools.islice(places, 4)
        yield CoordSlots((p1, p2, p3, p4), rollout.gt[j].box)
