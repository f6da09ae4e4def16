"""The embedded sampler: batched decoding of a transformers model (`engine.sampling.decoding`).

One prefill per distinct prompt, whose cache all its samples share; finished rows leave the batch.
Nothing is inherited from the model's generation config but its end tokens. The same completion
comes out alone and in a batch of any size, as tokens; log-probabilities may differ in the last
bits, because a matrix product rounds by its shape. Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor

from engine.contract.rl.sampling import SamplingConfig
from engine.data.rows import Question
from engine.models.policy import Policy
from engine.run.stop import check_abort
from engine.sampling.base import Groups, Rollout
from engine.sampling.decoding import Way, begin, way_of
from engine.sampling.draws import PLAIN, Drawn, draw
from engine.sampling.seeds import draw_number, key, uniforms
from engine.sampling.stops import cut_at

_SLACK = 8
"""Tokens beside those of a stop text that are read again: a character may take several."""


@dataclass
class _Row:
    """One completion while it grows."""

    question: Question
    prompt_ids: tuple[int, ...]
    sample: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    shift: float = 0.0
    stopped: bool = False
    """A stop text ended it."""


@dataclass(frozen=True)
class HFSampler:
    """Raises Aborted between two decode steps when asked to stop."""

    policy: Policy
    seed: int
    purpose: str
    """Keeps training and held-out draws apart: part of each completion's seed."""
    temp: float
    """0 is greedy."""
    max_new_tokens: int
    batch_size: int
    pin_version: bool = False
    """Draw with the same random numbers at every step, so that gates compare like with like."""
    sampling: SamplingConfig = PLAIN
    encode: Callable[[Question], tuple[int, ...]] | None = None
    """From a question to prompt ids; without it the tokenizer reads the question as it stands."""
    stops: Sequence[str] = ()
    """Texts at which a completion ends; its text ends before the first of them."""

    def __call__(self, tasks: Sequence[Question], k: int) -> Groups:
        """k completions of each task, in the tasks' order."""
        encode = self.encode or (lambda task: self.policy.encode(task.prompt))
        rows = [
            _Row(task, prompt_ids, task.again * k + sample)
            for task in tasks
            for prompt_ids in [encode(task)]
            for sample in range(k)
        ]
        # Equal lengths side by side need no padding.
        ordered = sorted(rows, key=lambda row: len(row.prompt_ids))
        way = way_of(self.policy)
        alike = [ordered]
        if way is Way.EQUAL:
            alike = [list(some) for _, some in groupby(ordered, lambda row: len(row.prompt_ids))]
        with torch.inference_mode(), self.policy.computing():
            for some in alike:
                for start in range(0, len(some), self.batch_size):
                    self._decode(some[start : start + self.batch_size], way)
        return [
            [self._rollout(row) for row in rows[i * k : (i + 1) * k]] for i in range(len(tasks))
        ]

    def _decode(self, rows: list[_Row], way: Way) -> None:
        """Grow every row to its end token or the limit."""
        numbers = torch.from_numpy(uniforms([self._key(row) for row in rows], self.max_new_tokens))
        numbers = numbers.to(self.policy.device)
        state = begin(self.policy, [row.prompt_ids for row in rows], way)
        for position in range(self.max_new_tokens):
            check_abort()
            drawn = draw(
                state.logits_BV,
                numbers[state.alive, position],
                self.temp,
                self.sampling,
                self._seen(rows, state.alive),
            )
            going = self._append(rows, state.alive, drawn)
            if not going or position + 1 == self.max_new_tokens:
                return
            state.advance(drawn.tokens_B, going)

    def _seen(self, rows: list[_Row], alive: Tensor) -> Sequence[Sequence[int]]:
        if self.sampling.repetition_penalty == 1.0:
            return ()
        return [(*rows[index].prompt_ids, *rows[index].ids) for index in alive.tolist()]

    def _append(self, rows: list[_Row], alive: Tensor, drawn: Drawn) -> list[int]:
        """Write the tokens down; positions within the batch of the rows that go on."""
        going: list[int] = []
        indices = alive.tolist()
        values = zip(indices, drawn.tokens_B.tolist(), drawn.logprobs_B.tolist(), strict=True)
        for place, (index, token, logprob) in enumerate(values):
            rows[index].ids.append(token)
            rows[index].logprobs.append(logprob)
            rows[index].stopped = self._stops_at(rows[index])
            if token not in self.policy.eos_ids and not rows[index].stopped:
                going.append(place)
        if drawn.shifts_B is not None:
            for index, shift in zip(indices, drawn.shifts_B.tolist(), strict=True):
                rows[index].shift += shift
        return going

    def _stops_at(self, row: _Row) -> bool:
        """Whether its newest tokens hold a stop text: a token is one character at least."""
        if not self.stops:
            return False
        longest = max(map(len, self.stops))
        tail = self.policy.tokenizer.decode(row.ids[-longest - _SLACK :])
        return any(stop in tail for stop in self.stops)

    def _key(self, row: _Row) -> int:
        number = draw_number(row.question.draw, self.policy.version, pinned=self.pin_version)
        return key(self.seed, self.purpose, row.question.id, number, row.sample)

    def _rollout(self, row: _Row) -> Rollout:
        return Rollout(
            question_id=row.question.id,
            sample=row.sample,
            prompt_ids=row.prompt_ids,
            completion_ids=tuple(row.ids),
            logprobs=tuple(row.logprobs),
            text=cut_at(self.policy.decode(row.ids, row.prompt_ids), self.stops),
            truncated=row.ids[-1] not in self.policy.eos_ids and not row.stopped,
            version=self.policy.version,
            draw_shift=row.shift,
        )
