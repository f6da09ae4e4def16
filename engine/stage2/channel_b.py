"""Channel-B: the model's own rollouts, judged against the ground truth and made into segments.

B0 rolls out, B1 parses and matches, then each sample becomes a B2 segment (the rollout's own
tokens: geometry of matched boxes; left out when nothing matched) and a B3 segment (the ground
truth in the order it was found: text). An invalid rollout trains like one that found nothing.
Knows no gradient.
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
from engine.stage2.target.desc_gate import DescGate
from engine.stage2.target.judge import JudgedRollout, judge
from engine.stage2.target.segments import CEWeights, Segment, build_targets


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
    """B2 and B3 of each sample, sample by sample."""
    seconds: Mapping[str, float]
    """`time/…` series."""


@dataclass(frozen=True)
class ChannelB:
    """The parts of a step in order; `sampler` is the rollout seam."""

    sampler: Sampler
    reader: PromptReader
    pieces: TokenPieces
    config: RolloutMatchingConfig
    weights: CEWeights
    gate: DescGate

    def __call__(self, records: Sequence[Record], seed_base: int) -> RolledOut:
        """B0 to B3 for one rank's share of a step."""
        began = time.perf_counter()
        prompts = [self.reader(record) for record in records]
        responses = self.sampler(prompts, seed_base)
        generated = time.perf_counter()
        self.gate.begin_step()
        judged = judge(
            [
                (response.ids, record.objects)
                for response, record in zip(responses, records, strict=True)
            ],
            self.pieces,
            self.config,
            self.gate,
        )
        parsed = time.perf_counter()
        sequences: list[TrainingSequence] = []
        for prompt, one in zip(prompts, judged, strict=True):
            made = build_targets(prompt.ids, one, self.weights, self.pieces)
            sequences += [
                TrainingSequence(segment, ModelInputs(segment.ids, prompt.pictures))
                for segment in (made.b2, made.b3)
                if segment is not None
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
