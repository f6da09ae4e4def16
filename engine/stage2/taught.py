"""What a judged rollout teaches, by trainer: its sequences, and how people are shown them.

ABTargets    `stage2_ab_training`: B2 and B3
OneTarget    `rollout_matching_sft`: one sequence with masks
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.stage2.inspect import shown
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.target.judge import JudgedRollout
from engine.stage2.target.rollout_target import build_target
from engine.stage2.target.segments import CEWeights, Segment, build_targets

AB_SERIES = "stage2_ab/channel_b"


class Targets(Protocol):
    """The seam between a rollout and the learner."""

    @property
    def series(self) -> str:
        """What the trainer's own series begin with."""
        ...

    def __call__(
        self, prompt_ids: Sequence[int], rollout: JudgedRollout, pieces: TokenPieces
    ) -> Sequence[Segment]:
        """The sequences of one rollout."""
        ...

    def spans(
        self, ids: Sequence[int], rollout: JudgedRollout, pieces: TokenPieces
    ) -> dict[str, Any]:
        """For people: `ids` as they were answered, and each sequence as stretches of one weight."""
        ...


@dataclass(frozen=True)
class ABTargets:
    """B2 where something matched, and B3."""

    weights: CEWeights
    series = AB_SERIES

    def __call__(
        self, prompt_ids: Sequence[int], rollout: JudgedRollout, pieces: TokenPieces
    ) -> Sequence[Segment]:
        """At most two."""
        made = build_targets(prompt_ids, rollout, self.weights, pieces)
        return [segment for segment in (made.b2, made.b3) if segment is not None]

    def spans(
        self, ids: Sequence[int], rollout: JudgedRollout, pieces: TokenPieces
    ) -> dict[str, Any]:
        """`answer`, `b2` (null without a match) and `b3`."""
        return shown.taught_spans(ids, rollout, self.weights, pieces)


@dataclass(frozen=True)
class OneTarget:
    """The rollout's prefix with what it missed."""

    desc_weight: float
    series = "rollout_matching"

    def __call__(
        self, prompt_ids: Sequence[int], rollout: JudgedRollout, pieces: TokenPieces
    ) -> Sequence[Segment]:
        """Always one."""
        return [build_target(prompt_ids, rollout, self.desc_weight, pieces)]

    def spans(
        self, ids: Sequence[int], rollout: JudgedRollout, pieces: TokenPieces
    ) -> dict[str, Any]:
        """`answer` and `target`."""
        return shown.target_spans(ids, rollout, self.desc_weight, pieces)
