"""What people see of a judged rollout, as plain data: entries, objects, whose each token is.

The rollout files and the microscope say the same by it. Knows no weight of its own and no page.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from engine.stage2.inspect.roles import Role, b3_roles, y_train_roles
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.target.judge import JudgedRollout
from engine.stage2.target.match import box_iou
from engine.stage2.target.rollout_target import build_target
from engine.stage2.target.segments import CEWeights, Segment, build_targets

CUT = "cut"
"""Whose a token is that stands behind the place where the rollout was cut."""


def entries(rollout: JudgedRollout) -> list[dict[str, Any]]:
    """Each entry that the rollout finished: its box with its match, or why it was dropped."""
    partner = {i: (j, ok) for (i, j), ok in zip(rollout.found.pairs, rollout.accepted, strict=True)}
    rows: list[dict[str, Any]] = []
    count = 0
    for entry in rollout.parsed.entries:
        row: dict[str, Any] = {"key": entry.key, "drop": entry.drop, "match": None}
        if entry.prediction is not None:
            box = entry.prediction.box
            row |= {"desc": entry.prediction.desc, "bbox_2d": list(box)}
            if count in partner:
                j, accepted = partner[count]
                iou = float(box_iou([box], [rollout.gt[j].box])[0, 0])
                row["match"] = {"object": j, "iou": iou, "desc_accepted": accepted}
            count += 1
        rows.append(row)
    return rows


def objects(rollout: JudgedRollout) -> list[dict[str, Any]]:
    """Each object of the ground truth, and whether the rollout found it."""
    return [
        {"desc": o.desc, "bbox_2d": list(o.box), "matched": j not in rollout.found.missing}
        for j, o in enumerate(rollout.gt)
    ]


def answer_roles(
    ids: Sequence[int], rollout: JudgedRollout, pieces: TokenPieces
) -> list[Role | None]:
    """One role for each of the rollout's own tokens; None for what stands behind the cut."""
    roles = y_train_roles(rollout, pieces)
    kept = rollout.parsed.prefix_ids
    return [
        roles[index]
        if index < len(kept) and kept[index] == token_id and not rollout.parsed.invalid
        else None
        for index, token_id in enumerate(ids)
    ]


def taught_spans(
    ids: Sequence[int], rollout: JudgedRollout, weights: CEWeights, pieces: TokenPieces
) -> dict[str, Any]:
    """What was answered, and what its two segments teach, as stretches of equal role and weight.

    `b2` is null where nothing matched: there is no geometry to learn. `target` of a b2 stretch is
    the bin that its coord token should have said.
    """
    made = build_targets((), rollout, weights, pieces)
    roles = answer_roles(ids, rollout, pieces)
    answer = [(id_, role, None, None) for id_, role in zip(ids, roles, strict=True)]
    return {
        "answer": spans(answer, pieces),
        "b2": None
        if made.b2 is None
        else spans(_of(made.b2, y_train_roles(rollout, pieces)[:-1]), pieces),
        "b3": spans(_of(made.b3, b3_roles(rollout, pieces)), pieces),
    }


def target_spans(
    ids: Sequence[int], rollout: JudgedRollout, desc_weight: float, pieces: TokenPieces
) -> dict[str, Any]:
    """What was answered, and what the one sequence of rollout matching teaches of it."""
    made = build_target((), rollout, desc_weight, pieces)
    roles = answer_roles(ids, rollout, pieces)
    answer = [(id_, role, None, None) for id_, role in zip(ids, roles, strict=True)]
    return {
        "answer": spans(answer, pieces),
        "target": spans(_of(made, y_train_roles(rollout, pieces)), pieces),
    }


Token = tuple[int, Role | None, float | None, int | None]
"""Id, role, CE weight and target bin."""


def spans(tokens: Sequence[Token], pieces: TokenPieces) -> list[dict[str, Any]]:
    """Neighbours with the same role, weight and target as one stretch of text."""
    found = []
    for (role, weight, target), group in itertools.groupby(tokens, key=lambda token: token[1:]):
        ids = [token[0] for token in group]
        found.append(
            {
                "text": b"".join(pieces.of_all(ids)).decode(errors="replace"),
                "tokens": len(ids),
                "part": None if role is None else role.part.value,
                "source": CUT if role is None else role.source.value,
                "entry": None if role is None else role.owner,
                "weight": weight,
                "target": target,
            }
        )
    return found


def _of(segment: Segment, roles: Sequence[Role]) -> list[Token]:
    bins = {
        position: slots.box[axis]
        for slots in segment.slots
        for axis, position in enumerate(slots.positions)
    }
    return list(_tokens(segment, roles, bins))


def _tokens(segment: Segment, roles: Sequence[Role], bins: dict[int, int]) -> Iterator[Token]:
    columns = zip(segment.ids, roles, segment.ce_weights, strict=True)
    for index, (token_id, role, weight) in enumerate(columns):
        yield token_id, role, weight, bins.get(index)
