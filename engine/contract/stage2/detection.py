"""How the boxes of an evaluation are scored, beside F1 of the matching."""

from __future__ import annotations

from typing import Literal, get_args

from engine.contract.section import StrictSection

BoxScore = Literal["one", "coord_prob"]
BestBy = Literal["rollout_f1", "detection_map"]
"""What picks the checkpoint and gives the verdict: `training.metric_for_best_model`."""
BEST_BY: tuple[BestBy, ...] = get_args(BestBy)
BENCH = "detection"


class DetectionConfig(StrictSection):
    """The bench `detection`: COCO's mAP, F1 at IoU 0.5 and mean IoU of every evaluation."""

    score: BoxScore = "one"
    """What orders the boxes of a class for mAP: nothing, every box scores 1.0 (`one`), or the
    probability of its coord tokens (`coord_prob`), for which the model reads each answer once
    more. It is part of the bench's name: scores of the two do not compare."""

    @property
    def bench(self) -> str:
        """`detection`, or `detection-coord_prob`."""
        return BENCH if self.score == "one" else f"{BENCH}-{self.score}"
