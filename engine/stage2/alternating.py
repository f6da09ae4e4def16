"""How `stage2_ab_training` learns a window: soft context on the ground truth, or its own rollouts.

The optimizer step alone chooses the channel. The window's loss is the mean over its samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from engine.contract.sources.records import Record
from engine.stage2.channel_a import build_segment
from engine.stage2.learn.layout import ModelInputs
from engine.stage2.learn.learner import BackwardStats, Learner
from engine.stage2.learn.objective import Terms
from engine.stage2.preflight import require_length
from engine.stage2.rollout.prompts import Prompt
from engine.stage2.rollout.reading import THREADS, ahead
from engine.stage2.rollout_step import RolledOut, RolloutStep, TrainingSequence
from engine.stage2.schedule import Channel, channel_of
from engine.stage2.window import Drawn, Learnt, pack_values


@dataclass(frozen=True)
class Alternating:
    """Channel A or B by the step."""

    learner: Learner
    rollouts: RolloutStep
    drawn: Drawn
    b_ratio: float
    desc_weight: float
    max_length: int | None
    """Longest sequence in tokens."""
    make_room: Callable[[], None] = lambda: None
    """Called before anything is learnt."""
    pipelined: bool = False
    """Channel-B learns each decode call's rollouts while servers draw the next one's."""

    def __call__(self, window: Sequence[Record], step: int) -> Learnt:
        """Gradients of the window's mean loss."""
        channel = channel_of(step, self.b_ratio)
        parts: list[RolledOut] = []
        records = tuple(window) if channel == "a" else self.drawn(window, step)
        with self._sequences(channel, records, step, parts) as sequences:
            self.make_room()
            learnt = self.learner(sequences, channel)
        rolled_out = RolledOut.of(parts) if channel == "b" else None
        parameters = list(self.learner.vlm.model.parameters())
        samples = self.drawn.ranks.average_gradients(parameters, len(records))
        values = self._values(channel, learnt, samples, rolled_out)
        return Learnt(values, records, channel, rolled_out)

    @contextmanager
    def _sequences(
        self, channel: Channel, records: Sequence[Record], step: int, parts: list[RolledOut]
    ) -> Iterator[Iterable[TrainingSequence]]:
        """What is learnt; rollouts that it came of are added to `parts`. Pipelined, each is drawn
        when it is asked for: all of them before the step ends, and none once it is given up.
        """
        seeds = self.drawn.seed_base(step)
        if channel == "a":
            prompts = [self.rollouts.reader(record) for record in records]
            read = (prompt for some in ahead(prompts, THREADS) for prompt in some)
            yield [self._taught(*one) for one in zip(records, read, strict=True)]
        elif self.pipelined:
            with closing(self.rollouts.stream(records, seeds)) as coming:
                yield _kept(coming, parts)
        else:
            parts.append(self.rollouts(records, seeds))
            yield parts[0].sequences

    def _taught(self, record: Record, prompt: Prompt) -> TrainingSequence:
        """Channel-A's sequence of one sample."""
        segment = build_segment(prompt.ids, record.objects, self.desc_weight, self.rollouts.pieces)
        require_length(record, len(segment), self.max_length)
        return TrainingSequence(segment, ModelInputs(segment.ids, prompt.pictures))

    def _values(
        self, channel: Channel, learnt: BackwardStats, samples: int, rolled_out: RolledOut | None
    ) -> dict[str, float]:
        """The step's series over all ranks."""
        terms = Terms()
        everybody = self.drawn.ranks.gather([learnt])
        for one in everybody:
            terms.add(one.terms)
        values = {
            "train/loss": terms.total(self.learner.weights) / max(samples, 1),
            "loss/ce": terms.ce / max(samples, 1),
            "loss/bbox_smoothl1": terms.smoothl1 / max(samples, 1),
            "loss/bbox_ciou": terms.ciou / max(samples, 1),
            "loss/coord_mass": terms.coord_mass / max(samples, 1),
            "loss/bbox_not_finite": float(terms.not_finite),
            "stage2/channel_a": float(channel == "a"),
            "stage2/channel_b": float(channel == "b"),
            "train/samples": float(samples),
            "train/forwards": float(sum(one.forwards for one in everybody)),
            **pack_values(everybody),
        }
        if rolled_out is not None:
            judged = self.drawn.ranks.gather(list(rolled_out.judged))
            values["stage2/b2_segments"] = float(sum(bool(one.found.pairs) for one in judged))
        return values


def _kept(coming: Iterable[RolledOut], parts: list[RolledOut]) -> Iterator[TrainingSequence]:
    """The sequences as they come."""
    for part in coming:
        parts.append(part)
        yield from part.sequences
