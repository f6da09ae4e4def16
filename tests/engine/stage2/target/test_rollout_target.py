"""One target a sample: which tokens of it are learnt, by which loss, and towards what."""

from __future__ import annotations

import pytest

from engine.contract.sources.ground_truth import GTObject
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.target.payload import render
from engine.stage2.target.rollout_target import build_target
from engine.stage2.target.segments import Segment
from tests.engine.stage2.families import FAMILIES, byte_level, characters
from tests.engine.stage2.mutations import inactive_gate
from tests.engine.stage2.target.test_segments import (
    CAR,
    CAT,
    DOG,
    PROMPT,
    ROLLOUT,
    judged,
    text_of,
    weighed,
)


def target(text: str, gt: list[GTObject], pieces: TokenPieces, desc: float = 0.0) -> Segment:
    return build_target(PROMPT, judged(text, gt, pieces, inactive_gate()), desc, pieces)


@pytest.mark.requirement("RM-01")
def test_a_target_is_prefix_missing_objects_and_end_with_the_tail_alone_weighed() -> None:
    """Of the prefix no text; of the tail structure 1, descriptions nothing, coords nothing; the
    closing brace and the end are learnt.
    """
    pieces = characters()

    one = target(ROLLOUT, [CAT, DOG, CAR], pieces)

    prefix = ROLLOUT[:-1]
    assert text_of(one, pieces).startswith(prefix)
    assert weighed(one, pieces) == [
        (prefix, 0.0),
        (', "object_4": {"desc": "', 1.0),
        ("dog }", 0.0),
        ('", "bbox_2d": ["', 1.0),
        *[("<|coord_200|>", 0.0), ('", "', 1.0), ("<|coord_200|>", 0.0), ('", "', 1.0)],
        *[("<|coord_300|>", 0.0), ('", "', 1.0), ("<|coord_300|>", 0.0)],
        ('"]}}<|im_end|>', 1.0),
    ]
    assert one.ce_weights[: len(PROMPT)] == (0.0,) * len(PROMPT)


@pytest.mark.requirement("RM-01")
def test_boxes_are_learnt_where_they_were_matched_and_where_they_are_appended() -> None:
    """Towards the ground truth's values, wherever the rollout put its own; a false positive has
    coord tokens too, and no slot.
    """
    pieces = byte_level()
    near = GTObject("car", (510, 505, 890, 900))
    text = render([near, GTObject("bus", (700, 0, 800, 50)), CAT]).text

    one = target(text, [CAT, DOG, CAR], pieces)

    assert [slot.box for slot in one.slots] == [CAR.box, CAT.box, DOG.box]
    written = [tuple(pieces.coord_bins[one.ids[p]] for p in slot.positions) for slot in one.slots]
    assert written == [near.box, CAT.box, DOG.box]


@pytest.mark.requirement("RM-01")
def test_descriptions_of_the_tail_have_a_weight_of_their_own() -> None:
    """By default none."""
    pieces = characters()

    weighted = dict(weighed(target(ROLLOUT, [CAT, DOG, CAR], pieces, desc=0.5), pieces))

    assert weighted["dog }"] == 0.5


@pytest.mark.requirement("RM-01")
@pytest.mark.parametrize("text", ["no object at all", '{"object_1": {"desc": "c', ""])
def test_an_invalid_rollout_learns_the_whole_ground_truth_but_its_first_brace(text: str) -> None:
    """Its prefix is the brace, which it did not write."""
    pieces = characters()

    one = target(text, [CAT], pieces)

    assert text_of(one, pieces) == render([CAT]).text + "<|im_end|>"
    assert weighed(one, pieces)[0] == ("{", 0.0)
    assert weighed(one, pieces)[1] == ('"object_1": {"desc": "', 1.0)
    assert weighed(one, pieces)[-1] == ('"]}}<|im_end|>', 1.0)


@pytest.mark.requirement("RM-01")
@pytest.mark.parametrize("text", [render([]).text, render([CAT]).text])
def test_a_record_without_objects_learns_to_close_and_to_end(text: str) -> None:
    """After the bare brace, or after what the rollout made up."""
    pieces = characters()

    one = target(text, [], pieces)

    assert weighed(one, pieces)[-1] == ("}<|im_end|>", 1.0)
    assert one.slots == ()


@pytest.mark.requirement("RM-01")
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_of_tokenizers_teaches_each_object_once(family: str) -> None:
    """A token that joins description and structure counts as description."""
    pieces = FAMILIES[family]()

    one = target(ROLLOUT, [CAT, DOG, CAR], pieces)

    assert sorted(slot.box for slot in one.slots) == sorted([CAT.box, DOG.box, CAR.box])
    assert one.ids[-1] == pieces.end_id
    assert one.ce_weights[-1] == 1.0
    taught = b"".join(
        piece
        for piece, weight in zip(pieces.of_all(one.ids), one.ce_weights, strict=True)
        if weight
    )
    assert b"dog" not in taught
