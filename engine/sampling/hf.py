"""The embedded sampler: batched decoding of a transformers model with a key-value cache.

One prefill per distinct prompt, whose cache all its samples share; finished rows leave the batch.
Nothing is inherited from the model's generation config but its end tokens. The same completion
comes out alone and in a batch of any size, as tokens; log-probabilities may differ in the last
bits, because a matrix product rounds by its shape. Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor
from transformers import DynamicCache

from engine.contract.rl.sampling import SamplingConfig
from engine.data.rows import Question
from engine.models.policy import Policy
from engine.run.stop import check_abort
from engine.sampling.base import Groups, Rollout
from engine.sampling.draws import PLAIN, Drawn, draw
from engine.sampling.seeds import draw_number, key, uniforms


@dataclass
class _Row:
    """One completion while it grows."""

    question: Question
    prompt_ids: tuple[int, ...]
    sample: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    shift: float = 0.0


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

    def __call__(self, tasks: Sequence[Question], k: int) -> Groups:
        """k completions of each task, in the tasks' order."""
        encode = self.encode or (lambda task: self.policy.encode(task.prompt))
        rows = [
            _Row(task, prompt_ids, sample)
            for task in tasks
            for prompt_ids in [encode(task)]
            for sample in range(k)
        ]
        # Equal lengths side by side need no padding.
        order = sorted(range(len(rows)), key=lambda i: len(rows[i].prompt_ids))
        with torch.inference_mode(), self.policy.computing():
            for start in range(0, len(order), self.batch_size):
                self._decode([rows[i] for i in order[start : start + self.batch_size]])
        return [
            [self._rollout(row) for row in rows[i * k : (i + 1) * k]] for i in range(len(tasks))
        ]

    def _decode(self, rows: list[_Row]) -> None:
        """Grow every row to its end token or the limit."""
        numbers = torch.from_numpy(uniforms([self._key(row) for row in rows], self.max_new_tokens))
        numbers = numbers.to(self.policy.device)
        state = _Decoding.prefill(self.policy, [row.prompt_ids for row in rows])
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
            if token not in self.policy.eos_ids:
                going.append(place)
        if drawn.shifts_B is not None:
            for index, shift in zip(indices, drawn.shifts_B.tolist(), strict=True):
                rows[index].shift += shift
        return going

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
            text=self.policy.decode(row.ids, row.prompt_ids),
            truncated=row.ids[-1] not in self.policy.eos_ids,
            version=self.policy.version,
            draw_shift=row.shift,
        )


@dataclass
class _Decoding:
    """The moving part of a decode: cache and next-token logits of the rows still alive."""

    model: torch.nn.Module
    cache: DynamicCache
    logits_BV: Tensor  # noqa: N815 - shape suffix
    alive: Tensor
    """Index of each row within the batch it started in."""
    positions_B: Tensor  # noqa: N815 - shape suffix
    """Position of the next token, padding not counted."""
    mask: Tensor | None
    """1 for real tokens; None while no row has padding, which is the fast path."""

    @classmethod
    def prefill(cls, policy: Policy, prompts: Sequence[tuple[int, ...]]) -> _Decoding:
        """Read each distinct neighbouring prompt once, then give every row its copy."""
        distinct, row_of = _distinct(prompts)
        longest = max(len(ids) for ids in distinct)
        padded = [[0] * (longest - len(ids)) + list(ids) for ids in distinct]
        lengths = torch.tensor([len(ids) for ids in distinct], device=policy.device)
        ids = torch.tensor(padded, device=policy.device)
        columns = torch.arange(longest, device=policy.device)[None, :]
        padding = longest - lengths[:, None]
        mask = (columns >= padding).long() if padding.any() else None
        cache = DynamicCache()
        logits = policy.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(columns - padding).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        rows = torch.tensor(row_of, device=policy.device)
        cache.batch_select_indices(rows)
        return cls(
            model=policy.model,
            cache=cache,
            logits_BV=logits[rows],
            alive=torch.arange(len(prompts), device=policy.device),
            positions_B=lengths[rows],
            mask=None if mask is None else mask[rows],
        )

    def advance(self, chosen_B: Tensor, going: list[int]) -> None:
        """Drop the rows that ended and read the new token of the others."""
        if len(going) < len(chosen_B):
            self._keep(torch.tensor(going, device=chosen_B.device))
            chosen_B = chosen_B[going]
        if self.mask is not None:
            self.mask = torch.cat([self.mask, self.mask.new_ones(len(chosen_B), 1)], dim=1)
        self.logits_BV = self.model(
            input_ids=chosen_B[:, None],
            attention_mask=self.mask,
            position_ids=self.positions_B[:, None],
            past_key_values=self.cache,
            use_cache=True,
        ).logits[:, -1]
        self.positions_B = self.positions_B + 1

    def _keep(self, going: Tensor) -> None:
        self.cache.batch_select_indices(going)
        self.alive = self.alive[going]
        self.positions_B = self.positions_B[going]
        self.mask = None if self.mask is None else self.mask[going]


def _distinct(prompts: Sequence[tuple[int, ...]]) -> tuple[list[tuple[int, ...]], list[int]]:
    """Runs of equal prompts as (each once, index into them for every row)."""
    distinct: list[tuple[int, ...]] = []
    row_of: list[int] = []
    for prompt, run in groupby(prompts):
        row_of += [len(distinct)] * _length(run)
        distinct.append(prompt)
    return distinct, row_of


def _length(run: Iterator[object]) -> int:
    return sum(1 for _ in run)
