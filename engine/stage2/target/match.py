"""Match: which prediction found which object, decided the same way every time.

Each prediction keeps its `top_k` nearest objects; a pair is feasible from IoU `gate` on and costs
1 - IoU; leaving a prediction alone costs `fp_cost`, an object `fn_cost`. The cheapest assignment
is the Hungarian method's on the square matrix with a dummy for each side (Kuhn 1955; the dummies
as in DETR, Carion 2020, section 3.1). Of assignments that cost the same, the lexicographically
smallest list of pairs wins. Knows no token and no text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from engine.contract.sources.ground_truth import Box

Pair = tuple[int, int]
"""Index of the prediction, index of the object."""

INFEASIBLE = 1e6
"""More than any assignment of feasible pairs can cost."""
_TIE = 1e-11
"""Costs this near are one cost: sums of a few hundred terms below 1e3 err less in double."""


@dataclass(frozen=True, slots=True)
class Match:
    """The pairs, and who stayed alone; indices ascend."""

    pairs: tuple[Pair, ...]
    false_positives: tuple[int, ...]
    missing: tuple[int, ...]
    """Objects without a prediction (false negatives)."""
    candidates: int
    """Pairs that were among a prediction's top k."""
    gated: int
    """Of these, the pairs whose IoU lay below the gate."""


def match(
    predicted: Sequence[Box],
    objects: Sequence[Box],
    *,
    top_k: int,
    gate: float,
    fp_cost: float,
    fn_cost: float,
) -> Match:
    """Pair N predicted boxes with M objects.

    >>> found = match([(0, 0, 9, 9), (5, 5, 9, 9)], [(0, 0, 9, 9)],
    ...               top_k=5, gate=0.3, fp_cost=0.5, fn_cost=2.0)
    >>> found.pairs, found.false_positives
    (((0, 0),), (1,))
    """
    boxes_4N, boxes_4M = _columns(predicted), _columns(objects)
    iou_NM = _iou(boxes_4N, boxes_4M)
    near_NK = _candidates(boxes_4N, boxes_4M, iou_NM, top_k)
    near_iou_NK = np.take_along_axis(iou_NM, near_NK, axis=1)
    feasible_NK = near_iou_NK >= gate
    # what the assignment saves by making a pair, instead of leaving both alone
    gains_P = fp_cost + fn_cost - (1.0 - near_iou_NK[feasible_NK])
    feasible = zip(feasible_NK.nonzero()[0].tolist(), near_NK[feasible_NK].tolist(), strict=True)
    gains = dict(zip(feasible, gains_P.tolist(), strict=True))
    pairs = _smallest_optimum(gains)
    paired_i, paired_j = {i for i, _ in pairs}, {j for _, j in pairs}
    return Match(
        tuple(pairs),
        tuple(i for i in range(len(predicted)) if i not in paired_i),
        tuple(j for j in range(len(objects)) if j not in paired_j),
        candidates=near_NK.size,
        gated=near_NK.size - len(gains),
    )


def box_iou(first: Sequence[Box], second: Sequence[Box]) -> NDArray[np.float64]:
    """IoU of every pair, [N, M]; boxes without area have IoU 1 with their equal, else 0."""
    return _iou(_columns(first), _columns(second))


def _iou(a_4N: NDArray[np.int64], b_4M: NDArray[np.int64]) -> NDArray[np.float64]:
    ax1, ay1, ax2, ay2 = a_4N1 = a_4N[:, :, None]
    bx1, by1, bx2, by2 = b_4M
    width_NM = np.maximum(np.minimum(ax2, bx2) - np.maximum(ax1, bx1), 0)
    height_NM = np.maximum(np.minimum(ay2, by2) - np.maximum(ay1, by1), 0)
    inter_NM = width_NM * height_NM
    union_NM = (ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - inter_NM
    iou_NM: NDArray[np.float64] = inter_NM / np.maximum(union_NM, 1)
    flat_NM = union_NM <= 0
    if flat_NM.any():
        iou_NM[flat_NM] = (a_4N1 == b_4M[:, None, :]).all(axis=0)[flat_NM]
    return iou_NM


def match_metrics(matches: Sequence[Match]) -> dict[str, float]:
    """Precision, recall, F1 and the gate's share of rejected candidates, over a step."""
    hits = sum(len(m.pairs) for m in matches)
    false = sum(len(m.false_positives) for m in matches)
    missing = sum(len(m.missing) for m in matches)
    candidates = sum(m.candidates for m in matches)
    return {
        "rollout/precision": hits / max(hits + false, 1),
        "rollout/recall": hits / max(hits + missing, 1),
        "rollout/f1": 2 * hits / max(2 * hits + false + missing, 1),
        "rollout/gating_rejection_rate": sum(m.gated for m in matches) / max(candidates, 1),
    }


def _columns(boxes: Sequence[Box]) -> NDArray[np.int64]:
    """x1, y1, x2, y2 as rows, [4, N]."""
    return np.array(boxes, dtype=np.int64).reshape(-1, 4).T


def _candidates(
    a_4N: NDArray[np.int64], b_4M: NDArray[np.int64], iou_NM: NDArray[np.float64], top_k: int
) -> NDArray[np.intp]:
    """Each prediction's k objects of largest IoU, or of nearest centre when it meets none."""
    order_NM = np.argsort(-iou_NM, axis=1, kind="stable")
    alone_A = np.nonzero(~iou_NM.any(axis=1))[0]
    if alone_A.size:
        apart_2AM = _doubled_centres(a_4N[:, alone_A])[:, :, None] - _doubled_centres(b_4M)[:, None]
        order_NM[alone_A] = np.argsort((apart_2AM**2).sum(axis=0), axis=1, kind="stable")
    return order_NM[:, :top_k]


def _doubled_centres(boxes_4N: NDArray[np.int64]) -> NDArray[np.int64]:
    return boxes_4N[:2] + boxes_4N[2:]


def _smallest_optimum(gains: Mapping[Pair, float]) -> list[Pair]:
    """The assignment of largest gain; of those, the lexicographically smallest list of pairs.

    Predictions that share no object cannot compete, so each island of them is solved by itself.
    """
    pairs: list[Pair] = []
    islands = []
    for island_gains in _islands(gains):
        if len(island_gains) == 1 and max(island_gains.values()) > _TIE:
            pairs += island_gains  # nobody competes
        else:
            islands.append(_Island(island_gains))
    last_alone = max(pairs, default=(-1, -1))[0]
    queue = sorted((i, island) for island in islands for i in island.predictions)
    unsettled = sum(not island.settled for island in islands)
    for i, island in queue:
        if not unsettled and i > last_alone:
            break  # nothing more to gain: the list that ends here is a prefix of every other
        before = island.settled
        j = island.decide(i)
        unsettled -= island.settled - before
        if j is not None:
            pairs.append((i, j))
    return sorted(pairs)


def _islands(gains: Mapping[Pair, float]) -> list[dict[Pair, float]]:
    """The connected components of the feasible pairs."""
    root: dict[int, int] = {}  # predictions as they are, objects as -1 - j

    def find(node: int) -> int:
        while root.setdefault(node, node) != node:
            root[node] = node = root[root[node]]
        return node

    for i, j in gains:
        root[find(i)] = find(-1 - j)
    grouped: dict[int, dict[Pair, float]] = {}
    for (i, j), gain in gains.items():
        grouped.setdefault(find(i), {})[i, j] = gain
    return list(grouped.values())


class _Island:
    """Predictions and objects that compete, and the best assignment of those still undecided."""

    def __init__(self, gains: Mapping[Pair, float]) -> None:
        self.gains = dict(gains)
        self.predictions = sorted({i for i, _ in gains})
        self._keep(_assign(self.gains))

    def __lt__(self, other: _Island) -> bool:
        return self.predictions < other.predictions

    def decide(self, i: int) -> int | None:
        """Settle prediction i: its smallest object in any best assignment, None for nobody."""
        best = self.best
        partner = best.get(i)
        for j in sorted(j for p, j in self.gains if p == i and (partner is None or j < partner)):
            rest = _assign(self._without(i, j))
            if self._value(rest) + self.gains[i, j] >= self.value - _TIE:
                partner, best = j, rest
                break
        best.pop(i, None)
        self.gains = self._without(i, partner)
        self._keep(best)
        return partner

    def _keep(self, best: dict[int, int]) -> None:
        self.best = best
        self.value = self._value(best)
        self.settled = self.value <= _TIE
        """Leaving everyone undecided alone costs nothing."""

    def _without(self, i: int, j: int | None) -> dict[Pair, float]:
        return {pair: gain for pair, gain in self.gains.items() if pair[0] != i and pair[1] != j}

    def _value(self, assignment: Mapping[int, int]) -> float:
        return sum(self.gains[pair] for pair in assignment.items())


def _assign(gains: Mapping[Pair, float]) -> dict[int, int]:
    """An assignment of largest gain, prediction → object, by the dummy-augmented Hungarian.

    The n + m square: pairs cost minus their gain, a dummy costs 0, the infeasible 1e6.
    """
    if len(gains) == 1:
        ((pair, gain),) = gains.items()
        return dict([pair]) if gain > _TIE else {}
    rows = sorted({i for i, _ in gains})
    columns = sorted({j for _, j in gains})
    n, m = len(rows), len(columns)
    row_of = {i: row for row, i in enumerate(rows)}
    column_of = {j: column for column, j in enumerate(columns)}
    cost = np.zeros((n + m, n + m))
    cost[:n, :m] = INFEASIBLE
    for (i, j), gain in gains.items():
        cost[row_of[i], column_of[j]] = -gain
    found = zip(*linear_sum_assignment(cost), strict=True)
    return {
        rows[row]: columns[column]
        for row, column in found
        if row < n and column < m and cost[row, column] < INFEASIBLE
    }
