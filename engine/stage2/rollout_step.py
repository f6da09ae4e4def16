"""A step's rollouts: the model's own answers, judged by the ground truth, made into segments.

B0 rolls out, B1 parses and matches, then each sample becomes segments. In Channel-B these are B2
(the rollout's own tokens: geometry of matched boxes; left out when nothing matched) and B3 (the
ground truth in the order it was found: text). An invalid rollout trains like one that found
nothing. Knows no gradient.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from engine.contract.sources.records import Record
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.run.pace import counting
from engine.stage2.learn.layout import ModelInputs
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.rollout.base import Response, Sampler
from engine.stage2.rollout.prompts import Prompt, PromptReader, Unread
from engine.stage2.rollout.vllm import VLLMSampler
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

    @classmethod
    def of(cls, parts: Sequence[RolledOut]) -> RolledOut:
        """All of a step's, in their order."""
        seconds: dict[str, float] = {}
        for part in parts:
            for name, value in part.seconds.items():
                seconds[name] = seconds.get(name, 0.0) + value
        return cls(
            tuple(one for part in parts for one in part.responses),
            tuple(one for part in parts for one in part.judged),
            tuple(one for part in parts for one in part.sequences),
            seconds,
        )


@dataclass(frozen=True)
class RolloutStep:
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
        seconds = time.perf_counter() - began
        if self.gate is not None:
            self.gate.begin_step()
        return self._made(records, prompts, responses, {"time/rollout_generate_s": seconds})

    def stream(self, records: Sequence[Record], seed_base: int) -> Generator[RolledOut]:
        """The same, a decode call at a time: the next is drawn while the caller learns from one.

        The sampler must be one that streams. `time/rollout_waited_s`: of the seconds of decoding
        those in which nothing was learnt.
        """
        assert isinstance(self.sampler, VLLMSampler), "the config asks for servers"
        if self.gate is not None:
            self.gate.begin_step()
        first = 0
        with closing(self.sampler.stream(Unread(self.reader, records), seed_base)) as coming:
            for part in coming:
                some = records[first : first + len(part.prompts)]
                first += len(some)
                seconds = {
                    "time/rollout_generate_s": part.seconds,
                    "time/rollout_waited_s": part.waited,
                }
                yield self._made(some, part.prompts, part.responses, seconds)

    def _made(
        self,
        records: Sequence[Record],
        prompts: Sequence[Prompt],
        responses: Sequence[Response],
        seconds: Mapping[str, float],
    ) -> RolledOut:
        """B1 to B3 of some answers."""
        began = time.perf_counter()
        answered = [
            (response.ids, record.objects)
            for response, record in zip(responses, records, strict=True)
        ]
        judged = judge(answered, self.pieces, self.config, self.gate or no_gate())
        parsed = time.perf_counter()
        sequences: list[TrainingSequence] = []
        for prompt, one in counting("encode", list(zip(prompts, judged, strict=True))):
            sequences += [
                TrainingSequence(segment, ModelInputs(segment.ids, prompt.pictures))
                for segment in self.targets(prompt.ids, one, self.pieces)
            ]
        own = {
            "time/rollout_parse_match_s": parsed - began,
            "time/rollout_teacher_encode_s": time.perf_counter() - parsed,
        }
        return RolledOut(tuple(responses), tuple(judged), tuple(sequences), {**seconds, **own})
