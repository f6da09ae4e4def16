"""Losses: decode, SmoothL1 and CIoU against the paper, finite wherever boxes go, weighted CE."""

from __future__ import annotations

import math
import random

import pytest
import torch

from engine.contract.stage2 import coords
from engine.stage2.learn.losses import (
    ciou,
    expected_coords,
    geometry_loss,
    slot_tensors,
    smooth_l1,
    weighted_ce,
)

BINS = torch.arange(1000)


def paper_terms(p: list[float], g: list[float]) -> tuple[float, float, float]:
    """IoU, d²/c² and v in plain floats (Zheng 2020, eq. 6 to 9)."""
    px1, px2, py1, py2 = min(p[0], p[2]), max(p[0], p[2]), min(p[1], p[3]), max(p[1], p[3])
    w, h, gw, gh = px2 - px1, py2 - py1, g[2] - g[0], g[3] - g[1]
    overlap = max(0.0, min(px2, g[2]) - max(px1, g[0])) * max(0.0, min(py2, g[3]) - max(py1, g[1]))
    iou = overlap / (w * h + gw * gh - overlap)
    d2 = ((px1 + px2) / 2 - (g[0] + g[2]) / 2) ** 2 + ((py1 + py2) / 2 - (g[1] + g[3]) / 2) ** 2
    c2 = (max(px2, g[2]) - min(px1, g[0])) ** 2 + (max(py2, g[3]) - min(py1, g[1])) ** 2
    return iou, d2 / c2, 4 / math.pi**2 * (math.atan2(gw, gh) - math.atan2(w, h)) ** 2


def paper_loss(iou: float, distance: float, v: float) -> float:
    """L_CIoU = 1 - IoU + d²/c² + alpha v (eq. 10, 11)."""
    return 1 - iou + distance + v / (1 - iou + v) * v


def paper_gradient(p: list[float], g: list[float], step: float = 1e-6) -> list[float]:
    """By central differences; v's share without 1 / (w² + h²), as the paper says below eq. 12."""
    shrunk = (p[2] - p[0]) ** 2 + (p[3] - p[1]) ** 2
    v_here = paper_terms(p, g)[2]
    found = []
    for i in range(4):
        ends = []
        for sign in (1, -1):
            moved = [value + sign * step * (i == j) for j, value in enumerate(p)]
            iou, distance, v = paper_terms(moved, g)
            ends.append(paper_loss(iou, distance, v_here + (v - v_here) * shrunk))
        found.append((ends[0] - ends[1]) / (2 * step))
    return found


def draw_box(rng: random.Random) -> list[float]:
    x1, y1 = rng.uniform(0, 0.7), rng.uniform(0, 0.7)
    return [x1, y1, x1 + rng.uniform(0.05, 0.3), y1 + rng.uniform(0.05, 0.3)]


@pytest.mark.requirement("AB-18")
def test_ciou_is_the_papers() -> None:
    """Against plain floats, also for boxes turned round, apart and nested."""
    rng = random.Random(2)
    pairs = [(draw_box(rng), draw_box(rng)) for _ in range(300)]
    pairs += [([g[2], g[3], g[0], g[1]], p) for p, g in pairs[:50]]
    pred, target = (torch.tensor(side, dtype=torch.float64) for side in zip(*pairs, strict=True))

    expected = torch.tensor([paper_loss(*paper_terms(p, g)) for p, g in pairs], dtype=torch.float64)

    torch.testing.assert_close(ciou(pred, target), expected, atol=2e-5, rtol=0)


def test_ciou_tells_apart_what_giou_cannot() -> None:
    """Two boxes inside the target with one area: the one off centre, or slimmer, costs more."""
    target = torch.tensor([[0.0, 0.0, 0.8, 0.8]] * 3, dtype=torch.float64)
    inside = torch.tensor(
        [[0.2, 0.2, 0.6, 0.6], [0.0, 0.0, 0.4, 0.4], [0.3, 0.0, 0.5, 0.8]], dtype=torch.float64
    )

    centred, shifted, slim = ciou(inside, target).tolist()

    assert centred < shifted
    assert centred < slim


@pytest.mark.requirement("AB-18")
def test_gradients_of_the_box_losses_are_the_papers() -> None:
    """In double, away from the kinks of min and max."""
    rng = random.Random(4)
    pairs = [(draw_box(rng), draw_box(rng)) for _ in range(50)]
    pred, target = (torch.tensor(side, dtype=torch.float64) for side in zip(*pairs, strict=True))
    pred.requires_grad_()

    (found,) = torch.autograd.grad(ciou(pred, target).sum(), pred)

    expected = torch.tensor([paper_gradient(p, g) for p, g in pairs], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)
    assert torch.autograd.gradcheck(lambda p: smooth_l1(p, target), (pred,))


@pytest.mark.requirement("AB-18")
@pytest.mark.parametrize("ratio", [0.0, 0.01, 0.3, 1.0, 3.0, 100.0])
@pytest.mark.parametrize("side", [10.0**-k for k in range(10)])
def test_a_box_that_is_nearly_a_point_pulls_no_harder_than_another(
    side: float, ratio: float
) -> None:
    """First predictions are, and one of them must not be all of an update."""
    target = torch.tensor([[0.2, 0.2, 0.6, 0.4]], dtype=torch.float64)
    corner = torch.tensor([0.5, 0.3, 0.5, 0.3], dtype=torch.float64)
    size = torch.tensor([0, 0, side, side * ratio], dtype=torch.float64)
    pred = (corner + size)[None].requires_grad_()

    (found,) = torch.autograd.grad(ciou(pred, target).sum(), pred)

    assert float(found.abs().max()) < 6  # 1 / the target's height is 5


@pytest.mark.requirement("AB-18")
def test_gradients_reach_the_logits_exactly() -> None:
    """gradcheck through the decode, and both terms by its chain rule."""
    torch.manual_seed(0)
    logits = torch.randn(5, 1000, dtype=torch.float64, requires_grad=True)
    positions, boxes = slot_tensors([((1, 2, 3, 4), (100, 200, 800, 900))])

    def decoded(values: torch.Tensor) -> torch.Tensor:
        return expected_coords(values * 5, positions, BINS)

    loss = geometry_loss(logits * 5, positions, boxes, BINS)
    (found,) = torch.autograd.grad(loss.smoothl1 + loss.ciou, logits)

    box, target = decoded(logits), boxes.double() / 999
    (pull,) = torch.autograd.grad((ciou(box, target) + smooth_l1(box, target)).sum(), box)
    (expected,) = torch.autograd.grad(decoded(logits), logits, pull)
    torch.testing.assert_close(found, expected)
    assert torch.autograd.gradcheck(decoded, (logits,), eps=1e-6, atol=1e-5, fast_mode=True)


BOXES = {
    "point": [0.5, 0.5, 0.5, 0.5],
    "line": [0.5, 0.1, 0.5, 0.9],
    "flat": [0.1, 0.5, 0.9, 0.5],
    "inverted": [0.9, 0.9, 0.1, 0.1],
    "half inverted": [0.9, 0.1, 0.1, 0.9],
    "corner": [0.0, 0.0, 0.0, 0.0],
    "whole": [0.0, 0.0, 1.0, 1.0],
    "huge": [-1e30, -1e30, 1e30, 1e30],
    "huge line": [1e30, 0.0, 1e30, 1.0],
    "tiny": [1e-30, 0.0, 2e-30, 1e-30],
    "far": [1e20, 1e20, 2e20, 2e20],
}


@pytest.mark.requirement("AB-18")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("target", ["point", "line", "whole", "corner"])
@pytest.mark.parametrize("name", BOXES)
def test_no_box_makes_a_loss_or_gradient_that_is_not_finite(
    name: str, target: str, dtype: torch.dtype
) -> None:
    """Degenerate, huge, without area, turned round: values and gradients stay finite."""
    pred = torch.tensor([BOXES[name]], dtype=dtype, requires_grad=True)
    goal = torch.tensor([BOXES[target]], dtype=dtype)

    loss = ciou(pred, goal) + smooth_l1(pred, goal)
    torch.autograd.backward(loss.sum())

    assert bool(loss.isfinite().all())
    assert pred.grad is not None
    assert bool(pred.grad.isfinite().all())


@pytest.mark.requirement("AB-18")
def test_a_coordinate_is_decoded_from_the_logits_before_it() -> None:
    """The causal shift: only position p - 1 matters for the slot at p."""
    logits = torch.zeros(6, 1000)
    for position, k in zip((1, 2, 3, 4), (0, 250, 500, 999), strict=True):
        logits[position, k] = 60.0
    positions, _ = slot_tensors([((2, 3, 4, 5), (0, 0, 0, 0))])

    decoded = expected_coords(logits, positions, BINS)

    torch.testing.assert_close(decoded, torch.tensor([[0.0, 250 / 999, 500 / 999, 1.0]]))


@pytest.mark.requirement("AB-18")
def test_the_decode_is_the_expectation_not_the_argmax() -> None:
    """Two equal peaks decode to their middle; other tokens have no part in it."""
    logits = torch.full((2, 2000), -30.0)
    coord_ids = torch.arange(1000, 2000)
    logits[0, [1100, 1300]] = 30.0
    logits[0, 5] = 100.0
    positions, _ = slot_tensors([((1, 1, 1, 1), (0, 0, 0, 0))])

    assert expected_coords(logits, positions, coord_ids)[0, 0].item() == pytest.approx(200 / 999)


@pytest.mark.requirement("AB-18")
def test_half_precision_logits_are_decoded_in_float32() -> None:
    """bfloat16 cannot hold 1000 bins."""
    logits = torch.zeros(2, 1000, dtype=torch.bfloat16)
    logits[0, 777] = 60.0
    positions, _ = slot_tensors([((1, 1, 1, 1), (0, 0, 0, 0))])

    decoded = expected_coords(logits, positions, BINS)

    assert decoded.dtype == torch.float32
    assert decoded[0, 0].item() == pytest.approx(777 / 999, abs=1e-6)


def test_a_slot_at_position_zero_is_refused() -> None:
    """Nothing predicts the first token."""
    positions, boxes = slot_tensors([((0, 1, 2, 3), (0, 0, 1, 1))])
    with pytest.raises(ValueError, match="position 0"):
        geometry_loss(torch.zeros(4, 1000), positions, boxes, BINS)


@pytest.mark.requirement("AB-15", "AB-18")
def test_geometry_is_the_mean_over_boxes_and_touches_only_their_slots() -> None:
    """Logits of any other position, a false positive's too, get no gradient."""
    torch.manual_seed(1)
    logits = torch.randn(12, 1000, requires_grad=True)
    positions, boxes = slot_tensors(
        [((2, 3, 4, 5), (0, 0, 9, 9)), ((7, 8, 9, 10), (1, 2, 300, 400))]
    )

    loss = geometry_loss(logits, positions, boxes, BINS)
    each = [geometry_loss(logits, positions[i : i + 1], boxes[i : i + 1], BINS) for i in (0, 1)]
    torch.autograd.backward(loss.smoothl1 + loss.ciou)

    torch.testing.assert_close(loss.ciou, (each[0].ciou + each[1].ciou) / 2)
    torch.testing.assert_close(loss.smoothl1, (each[0].smoothl1 + each[1].smoothl1) / 2)
    assert logits.grad is not None
    touched = logits.grad.abs().sum(-1).nonzero().squeeze(-1).tolist()
    assert touched == [1, 2, 3, 4, 6, 7, 8, 9]


def test_smooth_l1_is_hubers_with_beta_1() -> None:
    """0.5 d² inside the unit square, mean over four coordinates, on the box as decoded."""
    pred = torch.tensor([[0.9, 0.0, 0.1, 0.5]])
    target = torch.tensor([[0.1, 0.0, 0.9, 0.5]])

    assert smooth_l1(pred, target).item() == pytest.approx((0.5 * 0.64 * 2) / 4)


@pytest.mark.requirement("AB-18")
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_logits_that_are_not_finite_count_zero_and_are_reported(bad: float) -> None:
    """The other box still trains; no NaN reaches a gradient."""
    torch.manual_seed(2)
    values = torch.randn(10, 1000)
    values[2, 7] = bad
    logits = values.requires_grad_()
    positions, boxes = slot_tensors(
        [((2, 3, 4, 5), (0, 0, 9, 9)), ((6, 7, 8, 9), (1, 2, 300, 400))]
    )

    loss = geometry_loss(logits, positions, boxes, BINS)
    torch.autograd.backward(loss.smoothl1 + loss.ciou)
    alone = geometry_loss(logits.detach(), positions[1:], boxes[1:], BINS)

    assert loss.not_finite == 1
    torch.testing.assert_close(loss.ciou.detach(), alone.ciou / 2)
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


def test_no_box_is_no_loss() -> None:
    """Zero, with a graph to go backward through."""
    logits = torch.randn(3, 1000, requires_grad=True)

    loss = geometry_loss(logits, *slot_tensors([]), BINS)
    torch.autograd.backward(loss.smoothl1 + loss.ciou)

    assert (loss.smoothl1.item(), loss.ciou.item(), loss.not_finite) == (0.0, 0.0, 0)


@pytest.mark.requirement("AB-17")
def test_ce_is_the_weighted_mean_over_the_shifted_tokens() -> None:
    """Sum of weighted CE over the sum of weights, however small that sum is."""
    torch.manual_seed(3)
    logits = torch.randn(5, 11)
    ids = torch.tensor([1, 4, 2, 9, 0])
    weights = torch.tensor([7.0, 0.25, 0.0, 0.5, 0.0])
    logs = logits.log_softmax(-1)

    loss = weighted_ce(logits, ids, weights)

    expected = -(0.25 * logs[0, 4] + 0.5 * logs[2, 9]) / 0.75
    torch.testing.assert_close(loss, expected)


def test_ce_without_any_weight_is_zero() -> None:
    """An image whose every token is masked trains nothing and breaks nothing."""
    logits = torch.randn(4, 7, requires_grad=True)

    loss = weighted_ce(logits, torch.tensor([1, 2, 3, 4]), torch.tensor([5.0, 0.0, 0.0, 0.0]))
    torch.autograd.backward(loss)

    assert loss.item() == 0.0


@pytest.mark.requirement("AB-18", "AB-20")
def test_perfect_logits_have_almost_no_loss() -> None:
    """The target bins decode to the target box."""
    box = (10, 20, 500, 999)
    logits = torch.zeros(5, 1000)
    for position, k in enumerate(box):
        logits[position, k] = 80.0
    positions, boxes = slot_tensors([((1, 2, 3, 4), box)])

    loss = geometry_loss(logits, positions, boxes, BINS)

    assert loss.smoothl1.item() == pytest.approx(0, abs=1e-9)
    assert loss.ciou.item() == pytest.approx(0, abs=1e-5)
    assert coords.decode(999) == 1.0
