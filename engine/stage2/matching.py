"""How `rollout_matching_sft` learns a window: it rolls out, one target a sample, one forward.

Its loss is CE plus the coord loss, each over the whole step and all ranks, whatever ranks, packs
and micro-steps it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.contract.sources.records import Record
from engine.stage2.learn.matching import MatchingLearner, MatchingStats, Sums
from engine.stage2.rollout_step import RolloutStep
from engine.stage2.window import Drawn, Learnt, pack_values


@dataclass(frozen=True)
class Matching:
    """The window of rollout matching."""

    learner: MatchingLearner
    rollouts: RolloutStep
    drawn: Drawn
    make_room: Callable[[], None] = lambda: None
    """Called before anything is learnt."""

    def __call__(self, window: Sequence[Record], step: int) -> Learnt:
        """Gradients of the step's loss."""
        records = self.drawn(window, step)
        rolled_out = self.rollouts(records, self.drawn.seed_base(step))
        mine = Sums.of([one.segment for one in rolled_out.sequences])
        sums = sum(self.drawn.ranks.gather([mine]), Sums())
        self.make_room()
        stats = self.learner(rolled_out.sequences, sums)
        parameters = list(self.learner.layouts.vlm.model.parameters())
        self.drawn.ranks.add_gradients(parameters)
        values = self._values(stats, sums, len(records))
        return Learnt(values, records, rolled_out=rolled_out)

    def _values(self, mine: MatchingStats, sums: Sums, samples: int) -> dict[str, float]:
        """The step's series over all ranks."""
        everybody = self.drawn.ranks.gather([mine])
        ce, coord = sum(one.ce for one in everybody), sum(one.coord for one in everybody)
        return {
            "train/loss": ce + coord,
            "loss/ce": ce,
            "loss/coord": coord,
            "loss/coord_soft_ce": sum(one.soft_ce for one in everybody),
            "loss/coord_w1": sum(one.w1 for one in everybody),
            "loss/coord_gate": sum(one.gate for one in everybody),
            "loss/coord_not_finite": float(sum(one.not_finite for one in everybody)),
            "train/samples": float(sum(self.drawn.ranks.gather([samples]))),
            "train/ce_weight": sums.weights,
            "train/coord_slots": float(sums.slots),
            "train/forwards": float(sum(one.forwards for one in everybody)),
            **pack_values([*everybody]),
        }
