"""The embedded sampler: batched decoding of a transformers model with a key-value cache.

One prefill per distinct prompt, whose cache all its samples share; finished rows leave the batch.
Sampling is by temperature alone: nothing is inherited from the model's generation config but its
end tokens. Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor
from transformers import DynamicCache

from engine.data import Question
from engine.hooks import check_abort
from engine.models.logprobs import log_softmax
from engine.models.policy import Policy
from engine.rollout import Groups, Rollout
from engine.rollout.seeds import key, uniforms

_CELLS = 2**24
"""Probabilities turned into a cumulative sum at once; bounds the memory of a large vocabulary."""


@dataclass
class _Row:
    """One completion while it grows."""

    question: Question
    prompt_ids: tuple[int, ...]
    sample: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


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

    def __call__(self, tasks: Sequence[Question], k: int) -> Groups:
        """k completions of each task, in the tasks' order."""
        rows = [
            _Row(task, prompt_ids, sample)
            for task in tasks
            for prompt_ids in [self.policy.encode(task.prompt)]
            for sample in range(k)
        ]
        # Equal lengths side by side need no padding.
        order = sorted(range(len(rows)), key=lambda i: len(rows[i].prompt_ids))
        with torch.inference_mode():
            for start in range(0, len(order), self.batch_size):
                self._decode([rows[i] for i in order[start : start + self.batch_size]])
        return [
            [self._rollout(row) for row in rows[i * k : (i + 1) * k]] for i in range(len(tasks))
        ]

    def _decode(self, rows: list[_Row]) -> None:
        """Grow every row to its end token or the limit."""
        draws = torch.from_numpy(uniforms([self._key(row) for row in rows], self.max_new_tokens))
        draws = draws.to(self.policy.device)
        state = _Decoding.prefill(self.policy, [row.prompt_ids for row in rows])
        for position in range(self.max_new_tokens):
            check_abort()
            log_p_BV = log_softmax(state.logits_BV, self.temp)
            chosen_B = _choose(log_p_BV, draws[state.alive, position], self.temp)
            taken_B = log_p_BV.gather(1, chosen_B[:, None]).squeeze(1)
            going = self._append(rows, state.alive, chosen_B, taken_B)
            if not going or position + 1 == self.max_new_tokens:
                return
            state.advance(chosen_B, going)

    def _append(
        self, rows: list[_Row], alive: Tensor, chosen_B: Tensor, taken_B: Tensor
    ) -> list[int]:
        """Write the tokens down; positions within the batch of the rows that go on."""
        going: list[int] = []
        values = zip(alive.tolist(), chosen_B.tolist(), taken_B.tolist(), strict=True)
        for place, (index, token, logprob) in enumerate(values):
            rows[index].ids.append(token)
            rows[index].logprobs.append(logprob)
            if token not in self.policy.eos_ids:
                going.append(place)
        return going

    def _key(self, row: _Row) -> int:
        version = 0 if self.pin_version else self.policy.version
        return key(self.seed, self.purpose, row.question.id, version, row.sample)

    def _rollout(self, row: _Row) -> Rollout:
        return Rollout(
            question_id=row.question.id,
            sample=row.sample,
            prompt_ids=row.prompt_ids,
            completion_ids=tuple(row.ids),
            logprobs=tuple(row.logprobs),
            text=self.policy.decode(row.ids),
            truncated=row.ids[-1] not in self.policy.eos_ids,
            version=self.policy.version,
        )


def _choose(log_p_BV: Tensor, draws_B: Tensor, temp: float) -> Tensor:
    """Inverse-CDF sampling with one uniform number a row; the argmax at temperature 0."""
    if temp == 0:
        return log_p_BV.argmax(-1)
    size = max(1, _CELLS // log_p_BV.shape[1])
    chosen = []
    for log_p, draws in zip(torch.split(log_p_BV, size), torch.split(draws_B, size), strict=True):
        cumulative = log_p.exp().cumsum(-1, dtype=torch.float64)
        target = draws[:, None] * cumulative[:, -1:]
        # right=True steps over tokens of probability zero
        chosen.append(torch.searchsorted(cumulative, target, right=True).squeeze(1))
    return torch.cat(chosen).clamp_(max=log_p_BV.shape[1] - 1)


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
