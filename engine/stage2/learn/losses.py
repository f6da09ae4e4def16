"""Losses of a teacher-forced segment: boxes from coord distributions, text from weighted CE.

A coord slot at position p is decoded from the logits at p - 1 as the expectation over its 1000
bins, never the argmax. Boxes are scored by SmoothL1 (Girshick 2015, beta 1) on the raw decode and
by CIoU (Zheng 2020, arXiv:1911.08287, eq. 7-11) on the box put in order. What is not finite
counts 0 and is reported. Knows no model and no channel.

Shapes: T positions, V vocabulary, N boxes, 4 coordinates, K = 1000 bins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.contract.stage2 import coords

EPS = 1e-7


@dataclass(frozen=True, slots=True)
class GeometryLoss:
    """Both geometry terms, each the mean over boxes; scalars of one graph."""

    smoothl1: Tensor
    ciou: Tensor
    not_finite: int
    """Boxes whose logits held NaN or an infinity; they count 0 in the means."""


def expected_coords(logits_TV: Tensor, positions_N4: Tensor, coord_ids_K: Tensor) -> Tensor:
    """c_hat = sum_k p(k) k/999 in [0, 1] for each slot, [N, 4], from the logits before it.

    In float32 at least. Raises ValueError for a slot at position 0, which nothing predicts.
    """
    p_N4K = _at_least_float32(_slot_logits(logits_TV, positions_N4, coord_ids_K)).softmax(dim=-1)
    bins_K = coords.decode_tensor(torch.arange(coords.BIN_COUNT, device=p_N4K.device))
    return p_N4K @ bins_K.to(p_N4K.dtype)


def geometry_loss(
    logits_TV: Tensor, positions_N4: Tensor, boxes_N4: Tensor, coord_ids_K: Tensor
) -> GeometryLoss:
    """SmoothL1 and CIoU of N boxes; `boxes_N4` are bins 0..999. No box: both are 0."""
    finite_N4K = _slot_logits(logits_TV, positions_N4, coord_ids_K).isfinite()
    finite_N = finite_N4K.flatten(1).all(dim=-1)
    kept = positions_N4[finite_N]
    pred = expected_coords(logits_TV, kept, coord_ids_K)
    target = coords.decode_tensor(boxes_N4[finite_N]).to(pred)
    count = max(len(positions_N4), 1)
    return GeometryLoss(
        smooth_l1(pred, target).sum() / count,
        ciou(pred, target).sum() / count,
        int((~finite_N).sum()),
    )


def smooth_l1(pred_N4: Tensor, target_N4: Tensor) -> Tensor:
    """Huber's loss with beta 1 on the boxes as decoded, mean over 4 coordinates; [N]."""
    return F.smooth_l1_loss(pred_N4, target_N4, beta=1.0, reduction="none").mean(dim=-1)


def ciou(pred_N4: Tensor, target_N4: Tensor) -> Tensor:
    """1 - IoU + centre distance + aspect term of each box, [N]; finite for every finite box.

    The predicted box is put in order first. CIoU does not change with scale, so boxes beyond the
    unit square are scaled into it: squares of large numbers would overflow. The trade-off factor
    alpha is differentiated like the rest; the aspect term has the paper's gradient, which stays
    bounded for boxes of any size, and not the exact one.
    """
    scale_N1 = torch.cat([pred_N4, target_N4], dim=-1).detach().abs().amax(-1, keepdim=True)
    scale_N1 = scale_N1.clamp(min=1.0)
    pred, target = _ordered(pred_N4 / scale_N1), target_N4 / scale_N1
    size, target_size = _size(pred), _size(target)
    inter = _span(
        torch.maximum(pred[:, :2], target[:, :2]), torch.minimum(pred[:, 2:], target[:, 2:])
    ).prod(dim=-1)
    union = size.prod(dim=-1) + target_size.prod(dim=-1) - inter
    iou = inter / (union + EPS)
    hull = torch.maximum(pred[:, 2:], target[:, 2:]) - torch.minimum(pred[:, :2], target[:, :2])
    centre = (pred[:, :2] + pred[:, 2:] - target[:, :2] - target[:, 2:]) / 2
    distance = centre.square().sum(-1) / (hull.square().sum(-1) + EPS)
    v = (4 / math.pi**2) * (_aspect(target_size) - _aspect(size)).square()
    alpha = v / (1 - iou + v + EPS)
    return 1 - iou + distance + alpha * v


def weighted_ce(logits_TV: Tensor, ids_T: Tensor, weights_T: Tensor) -> Tensor:
    """Sum of weighted CE over sum of weights; the token at p is predicted from the logits at p - 1.

    Only rows with a weight are read. All weights 0: the loss is 0. Scalar, float32 at least.
    """
    weights = weights_T[1:]
    rows = weights.nonzero().squeeze(-1)
    ce = F.cross_entropy(_at_least_float32(logits_TV[rows]), ids_T[rows + 1], reduction="none")
    kept = weights[rows].to(ce)
    if not len(rows):
        return ce.sum()
    return (ce * kept).sum() / kept.sum()


def slot_tensors(
    slots: Sequence[tuple[Sequence[int], Sequence[int]]], device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:
    """(positions, box) pairs as `positions_N4` and `boxes_N4`, int64, also for none."""
    positions = torch.tensor([list(p) for p, _ in slots], dtype=torch.long, device=device)
    boxes = torch.tensor([list(b) for _, b in slots], dtype=torch.long, device=device)
    return positions.reshape(-1, 4), boxes.reshape(-1, 4)


def _slot_logits(logits_TV: Tensor, positions_N4: Tensor, coord_ids_K: Tensor) -> Tensor:
    """[N, 4, K]: what each slot is predicted from. Never the whole vocabulary of a slot."""
    if positions_N4.numel() and int(positions_N4.min()) < 1:
        raise ValueError("a coord slot at position 0 has no logits before it; add the prompt")
    return logits_TV[(positions_N4 - 1).unsqueeze(-1), coord_ids_K]


def _at_least_float32(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()


def _ordered(box_N4: Tensor) -> Tensor:
    """(x1, y1, x2, y2) with x1 <= x2 and y1 <= y2."""
    first, second = box_N4[:, :2], box_N4[:, 2:]
    return torch.cat([torch.minimum(first, second), torch.maximum(first, second)], dim=-1)


def _size(box_N4: Tensor) -> Tensor:
    return box_N4[:, 2:] - box_N4[:, :2]


def _span(low_N2: Tensor, high_N2: Tensor) -> Tensor:
    return (high_N2 - low_N2).clamp(min=0)


def _aspect(size_N2: Tensor) -> Tensor:
    """atan(w / h), [N]; its gradient (h, -w) / (w² + h²) without the denominator, as the paper says
    below eq. 12: of a box that is nearly a point, which first predictions are, it would explode.
    """
    width, height = size_N2.unbind(-1)
    along = height.detach() * width - width.detach() * height
    return torch.atan(width / (height + EPS)).detach() + (along - along.detach())
