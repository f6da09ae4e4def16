"""Targets: B2 and B3 of a rollout, token by token, and what each token weighs."""

from __future__ import annotations

import itertools
import json

import pytest

from engine.contract.sources.ground_truth import GTObject
from engine.contract.stage2 import coords
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.stage2.inspect.roles import b3_roles, y_train_roles
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.target.desc_gate import DescGate
from engine.stage2.target.judge import JudgedRollout, judge, judge_metrics
from engine.stage2.target.payload import render
from engine.stage2.target.segments import (
    AppendError,
    CEWeights,
    SampleTargets,
    Segment,
    build_targets,
    fragment,
    outermost_brace,
    y_gt_canonical,
    y_gt_reordered,
    y_train,
)
from engine.stage2.taught import AB_SERIES
from tests.engine.stage2.families import FAMILIES, byte_level, characters
from tests.engine.stage2.mutations import inactive_gate

CAT, DOG, CAR = (
    GTObject("black cat", (0, 0, 100, 100)),
    GTObject("dog }", (200, 200, 300, 300)),
    GTObject("car", (500, 500, 900, 900)),
)
PROMPT = (11, 12, 13)
WEIGHTS = CEWeights(desc=1.0, desc_matched=0.2, dropped_structure=1.5)


class OnlyCats(DescGate):
    """Accepts any description whose ground truth is the cat."""

    def __init__(self) -> None:
        super().__init__(enabled=False, threshold=0.5, model_name_or_path="x", revision=None)

    def accepts(self, pairs):  # type: ignore[no-untyped-def]
        return [gt == CAT.desc for _, gt in pairs]


def judged(text: str, gt: list[GTObject], pieces: TokenPieces, gate: DescGate) -> JudgedRollout:
    (rollout,) = judge([(pieces.encode(text), gt)], pieces, RolloutMatchingConfig(), gate)
    return rollout


def targets(
    text: str, gt: list[GTObject], pieces: TokenPieces, weights: CEWeights = WEIGHTS
) -> SampleTargets:
    return build_targets(PROMPT, judged(text, gt, pieces, OnlyCats()), weights, pieces)


def text_of(segment: Segment, pieces: TokenPieces) -> str:
    return b"".join(pieces.of_all(segment.ids[len(PROMPT) :])).decode()


def weighed(segment: Segment, pieces: TokenPieces) -> list[tuple[str, float]]:
    """Stretches of assistant text with one weight."""
    rows = zip(
        pieces.of_all(segment.ids[len(PROMPT) :]), segment.ce_weights[len(PROMPT) :], strict=True
    )
    groups = itertools.groupby(rows, key=lambda row: row[1])
    return [(b"".join(piece for piece, _ in group).decode(), weight) for weight, group in groups]


ROLLOUT = render([CAR, GTObject("bus", (700, 0, 800, 50)), CAT]).text
"""Car and cat are found, in this order; the bus is a false positive; the dog is missed."""


@pytest.mark.requirement("AB-15", "AB-16", "AB-17")
def test_b3_weighs_each_token_as_the_contract_says() -> None:
    """Structure 1, accepted desc 0, matched desc 0.2, missing desc 1, coord 0, stop 0."""
    pieces = characters()

    b3 = targets(ROLLOUT, [CAT, DOG, CAR], pieces).b3

    assert weighed(b3, pieces) == [
        ('{"object_1": {"desc": "', 1.0),
        ("car", 0.2),
        ('", "bbox_2d": ["', 1.0),
        *[("<|coord_500|>", 0.0), ('", "', 1.0), ("<|coord_500|>", 0.0), ('", "', 1.0)],
        *[("<|coord_900|>", 0.0), ('", "', 1.0), ("<|coord_900|>", 0.0)],
        ('"]}, "object_2": {"desc": "', 1.0),
        ("black cat", 0.0),
        ('", "bbox_2d": ["', 1.0),
        *[("<|coord_0|>", 0.0), ('", "', 1.0), ("<|coord_0|>", 0.0), ('", "', 1.0)],
        *[("<|coord_100|>", 0.0), ('", "', 1.0), ("<|coord_100|>", 0.0)],
        ('"]}, "object_3": {"desc": "dog }", "bbox_2d": ["', 1.0),
        *[("<|coord_200|>", 0.0), ('", "', 1.0), ("<|coord_200|>", 0.0), ('", "', 1.0)],
        *[("<|coord_300|>", 0.0), ('", "', 1.0), ("<|coord_300|>", 0.0)],
        ('"]}', 1.0),
        ("}<|im_end|>", 0.0),
    ]
    assert b3.ce_weights[: len(PROMPT)] == (0.0,) * len(PROMPT)
    assert b3.slots == ()


@pytest.mark.requirement("AB-15")
def test_b2_has_slots_for_matched_predictions_alone() -> None:
    """The false positive has coord tokens too, and gets no gradient; nothing has CE."""
    pieces = byte_level()

    rollout = judged(ROLLOUT, [CAT, DOG, CAR], pieces, inactive_gate())
    roles = y_train_roles(rollout, pieces)

    b2 = build_targets(PROMPT, rollout, WEIGHTS, pieces).b2

    assert b2 is not None
    said = [[pieces.coord_bins[b2.ids[p]] for p in slots.positions] for slots in b2.slots]
    assert said == [list(CAR.box), list(CAT.box)]
    assert [slots.box for slots in b2.slots] == [CAR.box, CAT.box]
    assert set(b2.ce_weights) == {0.0}
    assert b2.ids[: len(PROMPT)] == PROMPT
    of_slots = {p for slots in b2.slots for p in slots.positions}
    others = {
        roles[i - len(PROMPT)].source
        for i, token_id in enumerate(b2.ids)
        if token_id in pieces.coord_bins and i not in of_slots
    }
    assert others == {"FP", "FN"}


@pytest.mark.requirement("AB-11", "AB-15")
def test_the_slots_box_is_the_ground_truths_not_the_predictions() -> None:
    """Geometry pulls the decoded box to where the object is."""
    pieces = byte_level()
    near = GTObject("car", (510, 505, 890, 900))

    b2 = targets(render([near]).text, [CAR], pieces).b2

    assert b2 is not None
    assert [slots.box for slots in b2.slots] == [CAR.box]


@pytest.mark.requirement("AB-16")
@pytest.mark.parametrize("family", FAMILIES)
def test_both_orders_of_the_ground_truth(family: str) -> None:
    """Canonical is the record's order; reordered puts matched first, in predicted order."""
    pieces = FAMILIES[family]()
    gt = [CAT, DOG, CAR]
    rollout = judged(ROLLOUT, gt, pieces, inactive_gate())

    assert y_gt_canonical(gt) == render([CAT, DOG, CAR]).text
    assert y_gt_reordered(gt, rollout.found) == render([CAR, CAT, DOG]).text
    b3 = build_targets(PROMPT, rollout, WEIGHTS, pieces).b3
    assert text_of(b3, pieces) == render([CAR, CAT, DOG]).text + "<|im_end|>"


@pytest.mark.requirement("AB-12", "AB-16")
@pytest.mark.parametrize("text", ["no object", "{", '{"object_1": {"desc": ""}}'])
def test_without_a_valid_prediction_everything_is_appended(text: str) -> None:
    """y_GT_reordered is canonical, B2 is left out, and the sample trains all the same."""
    pieces = byte_level()
    gt = [CAT, DOG]

    made = targets(text, gt, pieces)

    assert made.b2 is None
    assert text_of(made.b3, pieces) == y_gt_canonical(gt) + "<|im_end|>"
    assert sum(made.b3.ce_weights) > 0


@pytest.mark.requirement("AB-11", "AB-16")
def test_y_train_is_prefix_fragment_and_end() -> None:
    """The rollout's own tokens, then only JSON, then the end."""
    pieces = byte_level()
    rollout = judged(ROLLOUT, [CAT, DOG, CAR], pieces, inactive_gate())

    y = y_train(rollout, pieces)

    assert y[: len(rollout.parsed.prefix_ids)] == rollout.parsed.prefix_ids
    text = b"".join(pieces.of_all(y)).decode()
    assert (
        text == ROLLOUT[:-1] + ", " + render([DOG]).text[1:].replace("_1", "_4", 1) + "<|im_end|>"
    )
    assert list(json.loads(text.removesuffix("<|im_end|>"))) == [f"object_{n}" for n in range(1, 5)]
    assert y[-1] == pieces.end_id


@pytest.mark.requirement("AB-16")
@pytest.mark.parametrize(
    ("prefix", "objects", "text"),
    [
        (b"{", [CAR], render([CAR]).text[1:].replace("_1", "_7", 1)),
        (b'{"object_6": {}', [CAR], ", " + render([CAR]).text[1:].replace("_1", "_7", 1)),
        (b'{"object_6": {} \n', [CAR], ", " + render([CAR]).text[1:].replace("_1", "_7", 1)),
        (b'{"object_6": {},', [CAR], render([CAR]).text[1:].replace("_1", "_7", 1)),
        (b"{", [], "}"),
        (b'{"object_6": {}', [], "}"),
    ],
)
def test_the_fragment_joins_on_by_the_last_brace(
    prefix: bytes, objects: list[GTObject], text: str
) -> None:
    """`, ` behind a `}`, nothing behind `{` or `,`; the closing brace belongs to it."""
    assert fragment(prefix, objects, 7).text == text


@pytest.mark.parametrize(
    ("prefix", "objects", "message"),
    [
        (b'{"object_1": 5', [CAR], "ends in '5' cannot be appended to"),
        (b"", [CAR], "cannot be appended to"),
        (b'{"object_1": {},', [], "nothing follows"),
    ],
)
def test_a_prefix_that_cannot_be_joined_is_an_error(
    prefix: bytes, objects: list[GTObject], message: str
) -> None:
    """Never a guess at a separator."""
    with pytest.raises(AppendError, match=message):
        fragment(prefix, objects, 1)


@pytest.mark.requirement("AB-16")
def test_a_dropped_entry_weighs_structure_up_and_nothing_else() -> None:
    """Multiplier on structure tokens only; desc, coord and stop keep their weights."""
    pieces = byte_level()
    spoilt = ROLLOUT[:-1] + ', "object_4": {"desc": "x"}}'

    rollouts = [judged(text, [CAT, DOG, CAR], pieces, OnlyCats()) for text in (ROLLOUT, spoilt)]
    roles = b3_roles(rollouts[0], pieces)

    plain, raised = (build_targets((), one, WEIGHTS, pieces).b3 for one in rollouts)

    assert plain.ids == raised.ids
    for role, before, after in zip(roles, plain.ce_weights, raised.ce_weights, strict=True):
        assert after == (before * 1.5 if role.part == "structure" else before)
    assert 1.5 in raised.ce_weights


@pytest.mark.requirement("AB-15")
@pytest.mark.parametrize("family", FAMILIES)
def test_the_outermost_brace_is_found_by_depth(family: str) -> None:
    """Braces in descriptions and those of entries are not the one; nor is the last `}` token id."""
    pieces = FAMILIES[family]()
    text = render([CAT, GTObject("a }} b {", (1, 2, 3, 4))]).text
    ids = [*pieces.encode(text), *pieces.encode(" } }")]

    index = outermost_brace(pieces.of_all(ids))

    assert index is not None
    before = len(b"".join(pieces.of_all(ids[:index])))
    assert before < len(text.encode()) <= before + len(pieces.of(ids[index]))
    assert outermost_brace([b'{"a": {', b"}"]) is None


@pytest.mark.requirement("AB-15")
@pytest.mark.parametrize("family", FAMILIES)
def test_stopping_is_taught_by_nobody(family: str) -> None:
    """The token with the outermost brace and `<|im_end|>` weigh 0, however it is glued."""
    pieces = FAMILIES[family]()

    rollout = judged(ROLLOUT, [CAT, DOG, CAR], pieces, inactive_gate())

    b3 = build_targets((), rollout, WEIGHTS, pieces).b3

    stops = [i for i, role in enumerate(b3_roles(rollout, pieces)) if role.part == "stop"]
    assert stops == [len(b3.ids) - 2, len(b3.ids) - 1]
    assert [b3.ce_weights[i] for i in stops] == [0.0, 0.0]
    assert b3.ids[-1] == pieces.end_id


def test_an_image_without_objects_has_a_target_of_its_own() -> None:
    """`{}`: one structure token may weigh, the brace and the end do not."""
    pieces = characters()

    b3 = targets("{}", [], pieces).b3

    assert weighed(b3, pieces) == [("{", 1.0), ("}<|im_end|>", 0.0)]


def test_coord_tokens_inside_a_description_are_weighed_as_description() -> None:
    """They are text there: no geometry, and the desc weight."""
    pieces = byte_level()
    odd = GTObject("<|coord_5|>", (1, 2, 3, 4))

    b3 = targets("{", [odd], pieces).b3

    weights = [w for i, w in zip(b3.ids, b3.ce_weights, strict=True) if i in pieces.coord_bins]
    assert weights == [1.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.requirement("AB-08", "AB-12", "AB-24")
def test_a_steps_counters_come_together() -> None:
    """Parse, drops, matching and gate under their stable names."""
    pieces = byte_level()
    rollouts = [(pieces.encode(ROLLOUT), [CAT, DOG, CAR]), (pieces.encode("none"), [CAT])]
    gate = inactive_gate()

    metrics = judge_metrics(judge(rollouts, pieces, RolloutMatchingConfig(), gate), AB_SERIES)
    metrics |= gate.metrics(AB_SERIES)

    assert metrics["stage2/raw_rollouts"] == 2
    assert metrics["stage2/invalid_rollout"] == 1
    assert metrics["stage2_ab/channel_b/strict_drop/N_valid_pred"] == 3
    assert metrics["rollout/recall"] == 0.5
    assert metrics["stage2_ab/channel_b/semantic_desc_gate/is_active"] == 0.0


def test_matched_coordinates_stand_where_the_slots_say() -> None:
    """Positions count the prompt; each is a coord token."""
    pieces = byte_level()

    b2 = targets(render([CAR]).text, [CAR], pieces).b2

    assert b2 is not None
    (slots,) = b2.slots
    assert [b2.ids[p] for p in slots.positions] == [pieces.coord_ids[k] for k in CAR.box]
    assert [pieces.of(b2.ids[p]).decode() for p in slots.positions] == [
        coords.token(k) for k in CAR.box
    ]
