"""A step's rollouts: the model's own answers, judged by the ground truth, made into segments.

B0 rolls out, B1 parses and matches, then each sample becomes segments. In Channel-B these are B2
(the rollout's own tokens: geometry of matched boxes; left out when nothing matched) and B3 (the
ground truth in the order it was found: text). An invalid rollout trains like one that found
nothing. Knows no gradient.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.contract.sources.records import Record
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.stage2.learn.layout import ModelInputs
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.rollout.base import Response, Sampler
from engine.stage2.rollout.prompts import PromptReader
from engine.stage2.target.desc_gate import DescGate, no_gate
from engine.stage2.target.judge import JudgedRollout, judge
from engine.stage2.target.segments import Segment
from engine.stage2.taught import Targets


@dataclass(frozen=True, slots=True)
class TrainingSequence:
    """One sequence to learn: what, and on which pictures."""

    segment: Segment
    shown: ModelInputs


@dataclass(frozen=True, slots=True)
class RolledOut:
    """What one rank's rollouts of a step became."""

    responses: tuple[Response, ...]
    judged: tuple[JudgedRollout, ...]
    sequences: tuple[TrainingSequence, ...]
    """Those of each sample, sample by sample."""
    seconds: Mapping[str, float]
    """`time/…` series."""


@dataclass(frozen=True)
class ChannelB:
    """The parts of a step in order; `sampler` is the rollout seam."""

    sampler: Sampler
    reader: PromptReader
    pieces: TokenPieces
    config: RolloutMatchingConfig
    targets: Targets
    gate: DescGate | None
    """None for a trainer without one."""

    def gate_metrics(self) -> dict[str, float]:
        """Whether it could be loaded."""
        return {} if self.gate is None else self.gate.metrics(self.targets.series)

    def __call__(self, records: Sequence[Record], seed_base: int) -> RolledOut:
        """B0 to B3 for one rank's share of a step."""
        began = time.perf_counter()
        prompts = [self.reader(record) for record in records]
        responses = self.sampler(prompts, seed_base)
        generated = time.perf_counter()
        gate = self.gate or no_gate()
        gate.begin_step()
        judged = judge(
            [
                (response.ids, record.objects)
                for response, record in zip(responses, records, strict=True)
            ],
            self.pieces,
            self.config,
            gate,
        )
        parsed = time.perf_counter()
        sequences: list[TrainingSequence] = []
        for prompt, one in zip(prompts, judged, strict=True):
            sequences += [
                TrainingSequence(segment, ModelInputs(segment.ids, prompt.pictures))
                for segment in self.targets(prompt.ids, one, self.pieces)
            ]
        encoded = time.perf_counter()
        return RolledOut(
            tuple(responses),
            tuple(judged),
            tuple(sequences),
            {
                "time/rollout_generate_s": generated - began,
                "time/rollout_parse_match_s": parsed - generated,
                "time/rollout_teacher_encode_s": encoded - parsed,
            },
        )
