"""Matching: gate, costs, ties, against brute force in exact fractions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

import pytest

from engine.contract.sources.ground_truth import Box
from engine.stage2.target.match import Match, box_iou, match, match_metrics

DEFAULTS = {"top_k": 5, "gate": 0.3, "fp_cost": 0.5, "fn_cost": 2.0}


def paired(
    predicted: Sequence[Box], objects: Sequence[Box], **change: float
) -> list[tuple[int, int]]:
    rules = DEFAULTS | change
    found = match(
        predicted,
        objects,
        top_k=int(rules["top_k"]),
        gate=rules["gate"],
        fp_cost=rules["fp_cost"],
        fn_cost=rules["fn_cost"],
    )
    return list(found.pairs)


def exact_iou(a: Box, b: Box) -> Fraction:
    """IoU by its definition; boxes without area: 1 with their equal, else 0."""
    width = max(0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0, min(a[3], b[3]) - max(a[1], b[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    union = sum(areas) - width * height
    return Fraction(width * height, union) if union else Fraction(int(a == b))


def brute_force(
    predicted: Sequence[Box], objects: Sequence[Box], rules: dict[str, float]
) -> list[tuple[int, int]]:
    """Every assignment tried: least cost, then the smallest list of pairs."""
    cost = {}
    for i, p in enumerate(predicted):
        iou = [exact_iou(p, o) for o in objects]
        far = [(p[0] + p[2] - o[0] - o[2]) ** 2 + (p[1] + p[3] - o[1] - o[3]) ** 2 for o in objects]
        rank = sorted(range(len(objects)), key=lambda j: (-iou[j] if any(iou) else far[j], j))
        for j in rank[: int(rules["top_k"])]:
            if float(iou[j]) >= rules["gate"]:
                cost[i, j] = 1 - iou[j]

    def assignments(i: int, free: frozenset[int]) -> list[tuple[Fraction, list[tuple[int, int]]]]:
        if i == len(predicted):
            return [(Fraction(rules["fn_cost"]) * len(free), [])]
        found = [(c + Fraction(rules["fp_cost"]), pairs) for c, pairs in assignments(i + 1, free)]
        for j in free:
            if (i, j) in cost:
                rest = assignments(i + 1, free - {j})
                found += [(c + cost[i, j], [(i, j), *pairs]) for c, pairs in rest]
        return found

    return min(assignments(0, frozenset(range(len(objects)))))[1]


def draw_boxes(rng: random.Random, most: int, side: int) -> list[Box]:
    def box() -> Box:
        x1, x2 = sorted(rng.choices(range(side), k=2))
        y1, y2 = sorted(rng.choices(range(side), k=2))
        return x1, y1, x2, y2

    return [box() for _ in range(rng.randint(0, most))]


@pytest.mark.requirement("AB-11")
def test_matching_equals_brute_force_ties_included() -> None:
    """Small grids are full of equal IoUs; the answer is the cheapest, lexicographically first."""
    rng = random.Random(3)
    for _ in range(700):
        side = rng.choice([2, 3, 4, 8])
        predicted, objects = draw_boxes(rng, 4, side), draw_boxes(rng, 4, side)
        fp_cost, fn_cost = rng.choice([(0.5, 2.0), (0.0, 0.0), (0.25, 0.25), (0.5, 0.0)])
        gate = rng.choice([0.0, 0.25, 0.3, 0.5, 1.0])
        rules = {"top_k": rng.randint(1, 5), "gate": gate, "fp_cost": fp_cost, "fn_cost": fn_cost}

        assert paired(predicted, objects, **rules) == brute_force(predicted, objects, rules)


@pytest.mark.requirement("AB-11")
def test_matching_follows_a_permutation_of_its_inputs() -> None:
    """Without ties the same boxes pair up, in whatever order they come."""
    rng = random.Random(5)
    objects: list[Box] = [(x, x, x + 90 + rng.randint(0, 9), x + 95) for x in range(0, 800, 37)]
    predicted: list[Box] = [
        (a + rng.randint(0, 20), b, c + rng.randint(0, 20), d + rng.randint(0, 20))
        for a, b, c, d in objects[::2]
    ]
    boxes = {(predicted[i], objects[j]) for i, j in paired(predicted, objects)}

    for _ in range(20):
        some, others = rng.sample(predicted, len(predicted)), rng.sample(objects, len(objects))
        assert {(some[i], others[j]) for i, j in paired(some, others)} == boxes


@pytest.mark.requirement("AB-11")
def test_equal_boxes_pair_in_order() -> None:
    """All pairs cost the same: the smallest list is the diagonal."""
    same: list[Box] = [(1, 1, 5, 5)] * 4

    assert paired(same, same) == [(0, 0), (1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize(("gate", "pairs"), [(0.5, [(0, 0)]), (0.5001, [])])
def test_the_gate_is_inclusive(gate: float, pairs: list[tuple[int, int]]) -> None:
    """IoU exactly at the gate is feasible."""
    assert paired([(0, 0, 10, 10)], [(0, 0, 10, 5)], gate=gate) == pairs


def test_three_tenths_is_at_the_default_gate() -> None:
    """3/10 and the literal 0.3 are the same double."""
    assert paired([(0, 0, 10, 1)], [(0, 0, 3, 1)]) == [(0, 0)]


def test_only_the_k_nearest_objects_are_candidates() -> None:
    """With k = 1 a prediction that loses its best object gets none."""
    predicted: list[Box] = [(0, 0, 10, 10), (0, 0, 10, 9)]
    objects: list[Box] = [(0, 0, 10, 10), (0, 0, 10, 8)]

    assert paired(predicted, objects, top_k=1) == [(0, 0)]
    assert paired(predicted, objects, top_k=2) == [(0, 0), (1, 1)]


def test_a_prediction_that_meets_nothing_ranks_by_centre_distance() -> None:
    """Only seen with gate 0: the nearest centre is the candidate, not the first index."""
    objects: list[Box] = [(900, 900, 990, 990), (20, 20, 30, 30)]

    assert paired([(0, 0, 10, 10)], objects, top_k=1, gate=0.0) == [(0, 1)]


def test_a_costly_pair_is_left_apart() -> None:
    """1 - IoU must not exceed what leaving both alone costs; at equal cost nobody is paired."""
    predicted, objects = [(0, 0, 10, 10)], [(0, 0, 10, 5)]

    assert paired(predicted, objects, fp_cost=0.25, fn_cost=0.24) == []
    assert paired(predicted, objects, fp_cost=0.25, fn_cost=0.25) == []
    assert paired(predicted, objects, fp_cost=0.25, fn_cost=0.26) == [(0, 0)]


def test_the_whole_matters_more_than_the_best_pair() -> None:
    """Greedy would take IoU 1.0 first and lose the second pair."""
    predicted: list[Box] = [(0, 0, 10, 10), (0, 0, 10, 12)]
    objects: list[Box] = [(0, 0, 10, 10), (0, 0, 10, 3)]

    assert paired(predicted, objects) == [(0, 1), (1, 0)]


def test_boxes_without_area_match_only_their_equal() -> None:
    """IoU 1 with the same point, 0 with any other."""
    boxes: list[Box] = [(5, 5, 5, 5), (5, 5, 5, 9)]

    assert box_iou(boxes, [*boxes, (0, 0, 9, 9)]).tolist() == [[1, 0, 0], [0, 1, 0]]


def test_what_stays_alone_is_listed_and_counted() -> None:
    """False positives, missing objects and the gate's rejections."""
    found = match(
        [(0, 0, 9, 9), (500, 500, 510, 510)],
        [(0, 0, 9, 9), (0, 0, 99, 99)],
        top_k=5,
        gate=0.3,
        fp_cost=0.5,
        fn_cost=2.0,
    )

    assert found == Match(((0, 0),), (1,), (1,), candidates=4, gated=3)
    assert match_metrics([found, Match((), (), (), 0, 0)]) == {
        "rollout/precision": 0.5,
        "rollout/recall": 0.5,
        "rollout/f1": 0.5,
        "rollout/gating_rejection_rate": 0.75,
    }


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 2), (2, 0)])
def test_an_empty_side_pairs_nobody(n: int, m: int) -> None:
    """No predictions, or no objects."""
    found = match([(0, 0, 1, 1)] * n, [(0, 0, 1, 1)] * m, top_k=5, gate=0.3, fp_cost=0.5, fn_cost=2)

    assert (found.pairs, len(found.false_positives), len(found.missing)) == ((), n, m)
    assert match_metrics([found])["rollout/f1"] == 0.0


@pytest.mark.requirement("AB-11")
def test_among_many_equal_objects_the_lowest_indices_are_candidates() -> None:
    """Ties go to the lower index, however many there are."""
    predicted: list[Box] = [(0, 0, 10, 10)] * 3
    objects: list[Box] = [(0, 0, 10, 9 + i % 2) for i in range(200)]

    assert paired(predicted, objects, top_k=3) == [(0, 1), (1, 3), (2, 5)]
    assert paired(predicted[:1], objects, top_k=1, gate=0.0) == [(0, 1)]


def test_a_pair_that_gains_nothing_is_made_when_a_gain_follows() -> None:
    """With it the list of pairs is smaller; behind the last gain it would only make it longer."""
    half, whole = ((0, 0, 100, 100), (0, 0, 100, 50)), ((500, 0, 600, 100), (500, 0, 600, 100))
    free = {"fp_cost": 0.25, "fn_cost": 0.25}  # a pair at IoU 0.5 costs what two alone cost

    assert paired([half[0], whole[0]], [half[1], whole[1]], **free) == [(0, 0), (1, 1)]
    assert paired([whole[0], half[0]], [half[1], whole[1]], **free) == [(0, 1)]
