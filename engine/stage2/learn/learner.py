"""Learner: forward and backward over the sequences of a window, whichever channel they are of.

Sequences go into packs (padding-free, up to one length) or into padded batches; each costs one
backward, and their gradients add up. Knows no optimizer and no rollout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field

from torch import Tensor

from engine.contract.stage2.config import TrainingConfig
from engine.models.qwen3_vl import VisionModel, forward
from engine.run.pace import advance, counted
from engine.run.stop import check_abort
from engine.stage2 import channel_a
from engine.stage2.channel_a import SoftContext
from engine.stage2.learn.layout import Layout, packed, padded
from engine.stage2.learn.objective import LossWeights, Terms, objective
from engine.stage2.learn.packing import Pack, Packer, pack_window
from engine.stage2.rollout_step import TrainingSequence
from engine.stage2.schedule import Channel


@dataclass(frozen=True, slots=True)
class PackPlan:
    """How sequences are packed."""

    capacity: int
    buffer: int
    min_fill: float
    scope: str
    """`micro` takes a pack whenever the buffer is full, `window` looks at all sequences at once."""
    early: bool = False
    """A pack is taken as soon as what waits could fill one: there is something to learn from while
    the rest is drawn."""

    @classmethod
    def of(
        cls, training: TrainingConfig, capacity: int | None, scope: str, *, early: bool = False
    ) -> PackPlan | None:
        """None without packing."""
        if not training.packing:
            return None
        assert capacity is not None, "the config requires global_max_length with packing"
        least = training.packing_min_fill_ratio
        return cls(capacity, training.packing_buffer, least, scope, early)

    def packs(self, sequences: Iterable[TrainingSequence]) -> Iterator[Pack[TrainingSequence]]:
        """Every sequence in some pack. Raises PackingError for one too long."""
        if self.scope == "window":
            sequences = list(sequences)
            lengths = [len(s.segment) for s in sequences]
            yield from pack_window(sequences, lengths, self.capacity, self.min_fill)
            return
        packer: Packer[TrainingSequence] = Packer(
            capacity=self.capacity, buffer=self.buffer, min_fill=self.min_fill
        )
        for sequence in sequences:
            while len(packer) >= self.buffer or (self.early and packer.could_fill_one):
                yield _taken(packer)
            packer.insert(sequence, len(sequence.segment))
        while len(packer):
            yield _taken(packer)


def _taken(packer: Packer[TrainingSequence]) -> Pack[TrainingSequence]:
    pack = packer.take()
    assert pack is not None
    return pack


@dataclass(slots=True)
class BackwardStats:
    """What a window's forwards and backwards came to, on this rank."""

    terms: Terms = field(default_factory=Terms)
    forwards: int = 0
    """Backward passes; a pack or a padded batch each."""
    fills: list[float] = field(default_factory=list)
    segments: int = 0


@dataclass(frozen=True)
class Layouts:
    """Sequences as forwards: packs, or padded batches."""

    vlm: VisionModel
    pad_id: int
    plan: PackPlan | None
    micro_batch: int
    """Sequences of a padded batch."""

    def __call__(
        self, sequences: Iterable[TrainingSequence], fills: list[float]
    ) -> Iterator[tuple[Sequence[TrainingSequence], Layout]]:
        """Each with what stands in it; how full packs are is added to `fills`."""
        with counted("learn", len(sequences) if isinstance(sequences, Sized) else None):
            for part, layout in self._parts(sequences, fills):
                yield part, layout
                advance(len(part))

    def _parts(
        self, sequences: Iterable[TrainingSequence], fills: list[float]
    ) -> Iterator[tuple[Sequence[TrainingSequence], Layout]]:
        if self.plan is not None:
            for pack in self.plan.packs(sequences):
                fills.append(pack.fill)
                yield pack.items, packed([one.shown for one in pack.items], self.vlm)
            return
        sequences = list(sequences)
        for start in range(0, len(sequences), self.micro_batch):
            part = sequences[start : start + self.micro_batch]
            yield part, padded([one.shown for one in part], self.vlm, self.pad_id)


@dataclass(frozen=True)
class Learner:
    """The model with all that turns sequences into gradients."""

    layouts: Layouts
    coord_ids_K: Tensor  # noqa: N815 - shape suffix
    soft: SoftContext
    weights: LossWeights

    @property
    def vlm(self) -> VisionModel:
        return self.layouts.vlm

    def __call__(self, sequences: Iterable[TrainingSequence], channel: Channel) -> BackwardStats:
        """Add the gradients of the window's summed loss to the parameters."""
        found = BackwardStats()
        for part, layout in self.layouts(sequences, found.fills):
            check_abort()
            segments = [one.segment for one in part]
            logits = self._logits(layout, channel, part)
            loss, terms = objective(layout, segments, logits, self.weights, self.coord_ids_K)
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
            found.terms.add(terms)
            found.forwards += 1
            found.segments += len(part)
        return found

    def _logits(
        self, layout: Layout, channel: Channel, part: Sequence[TrainingSequence]
    ) -> tuple[Tensor, Tensor]:
        if channel == "b":
            logits = forward(self.vlm.model, layout.inputs() | {"input_ids": layout.ids_BT})
            return logits, logits
        slots_S2 = channel_a.slot_places(layout, [one.segment for one in part])
        return channel_a.run(layout, slots_S2, self.vlm, self.coord_ids_K, self.soft)
