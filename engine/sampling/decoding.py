"""Next-token logits of growing rows, in the fastest way that equals the model's plain forward.

Architectures keep their past in ways of their own: keys and values, sliding windows, states of
convolutions and recurrences, or nothing that can be handed on. Which way is sound is tried on the
model itself, once, because a wrong one is silent. Knows no sampling. Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import DynamicCache

from engine.contract.errors import RLLoopError
from engine.models.alike import expected_gap
from engine.models.forward import forward, takes
from engine.models.policy import Policy


class Way(StrEnum):
    """How rows are decoded, the fastest first."""

    PADDED = "with its cache"
    EQUAL = "with its cache, prompts of one length at a time"
    PLAIN = "without a cache: every token reads the whole text again"


TOLERANCE = {"fp32": 1e-3, "bf16": 0.1}
"""Nats: far above rounding, far below what reading a wrong past makes."""
_WAY = {"fp32": 1e-3, "bf16": 0.25}
"""The same for a way, at its worst place: there bfloat16 rounds a batch by 0.12 nats whatever is
read (SmolLM2-135M, with its cache or without)."""
_OTHERWISE = {"fp32": 1e-3, "bf16": 1.0}
"""The same for a model that is refused: in bfloat16 a row's neighbours change how it is rounded."""
_PROBE_LENGTHS, _PROBE_STEPS = (3, 9, 9, 14), 4


class Decoding(Protocol):
    """The moving part of a decode: next-token logits of the rows still alive."""

    logits_BV: Tensor  # noqa: N815 - shape suffix
    alive: Tensor
    """Index of each row within the batch it started in."""

    def advance(self, chosen_B: Tensor, going: list[int]) -> None:
        """Drop the rows that ended and read the new token of the others."""


def begin(policy: Policy, prompts: Sequence[tuple[int, ...]], way: Way) -> Decoding:
    """Read the prompts. `Way.EQUAL` takes prompts of one length."""
    if way is Way.PLAIN:
        return _Plain.begin(policy, prompts)
    return _Cached.prefill(policy, prompts)


_found: WeakKeyDictionary[Any, Way] = WeakKeyDictionary()


def way_of(policy: Policy) -> Way:
    """The fastest sound way for the policy's model, tried once.

    Raises RLLoopError for a model whose plain forward depends on what else is in its batch.
    """
    if policy.model not in _found:
        with torch.inference_mode(), policy.computing():
            _found[policy.model] = _tried(policy)
    return _found[policy.model]


def take_way(policy: Policy, way: Way) -> None:
    """That of another model of its architecture, where it was tried: how an architecture keeps its
    past does not depend on its weights, and few bits round more than a try allows.
    """
    _found[policy.model] = way


def _tried(policy: Policy) -> Way:
    vocabulary = policy.known_tokens
    ids = [(7 * place + 1) % vocabulary for place in range(max(_PROBE_LENGTHS) + _PROBE_STEPS)]
    texts = [tuple(ids[row:] + ids[:row]) for row in range(len(_PROBE_LENGTHS))]
    wanted = [_alone(policy, text) for text in texts]
    if not all(bool(told.isfinite().all()) for told in wanted):
        raise RLLoopError.of(
            "base",
            type(policy.model).__name__,
            f"gives log-probabilities that are no numbers in {policy.precision}",
            "set optim.precision: fp32, or save the weights again from where they are sound",
        )
    for way in (Way.PADDED, Way.EQUAL):
        try:
            apart = _apart(policy, way, texts, wanted)
        except Exception:  # noqa: BLE001, S112 - whatever a foreign cache raises: it cannot be used so
            continue
        if apart <= _WAY[policy.precision]:
            return way
    apart = _apart(policy, Way.PLAIN, texts, wanted)
    if not apart <= _OTHERWISE[policy.precision]:
        raise RLLoopError.of(
            "base",
            type(policy.model).__name__,
            f"reads a text otherwise alone than beside others (by {apart:.3g} nats), so what is "
            "sampled is not what is trained on",
            "name a model of another architecture",
        )
    return Way.PLAIN


def _alone(policy: Policy, text: tuple[int, ...]) -> Tensor:
    """Log-probabilities after each token of one text, [T, V]."""
    ids = torch.tensor([text], device=policy.device)
    return torch.log_softmax(forward(policy.model, input_ids=ids, use_cache=False).float()[0], -1)


def _apart(
    policy: Policy, way: Way, texts: Sequence[tuple[int, ...]], wanted: Sequence[Tensor]
) -> float:
    """How far log-probabilities are from the plain forward's: the mean over what it expects next,
    at the worst place. Rows share prompts, and one ends early.
    """
    lengths = [length for length in _PROBE_LENGTHS for _ in range(2)]
    sources = [row for row in range(len(texts)) for _ in range(2)]
    groups = [[*range(len(lengths))]]
    if way is Way.EQUAL:
        groups = [[i for i, n in enumerate(lengths) if n == length] for length in {*lengths}]
    furthest = 0.0
    for group in groups:
        rows = [(texts[sources[i]], wanted[sources[i]], lengths[i]) for i in group]
        state = begin(policy, [text[:length] for text, _, length in rows], way)
        for step in range(_PROBE_STEPS):
            alive = [rows[i] for i in state.alive.tolist()]
            there = torch.log_softmax(state.logits_BV.float(), -1)
            should = torch.stack([told[length + step - 1] for _, told, length in alive])
            apart = expected_gap(should, there).amax().item()
            furthest = math.inf if math.isnan(apart) else max(furthest, apart)
            chosen = [text[length + step] for text, _, length in alive]
            going = [i for i in range(len(alive)) if not (step == 1 and i == 1)]
            state.advance(torch.tensor(chosen, device=policy.device), going)
    return furthest


# --- the ways ---


@dataclass
class _Cached:
    model: Any
    cache: DynamicCache
    logits_BV: Tensor  # noqa: N815 - shape suffix
    alive: Tensor
    positions_B: Tensor  # noqa: N815 - shape suffix
    """Position of the next token, padding not counted."""
    mask: Tensor | None
    """1 for real tokens; None while no row has padding, which is the fast path."""

    @classmethod
    def prefill(cls, policy: Policy, prompts: Sequence[tuple[int, ...]]) -> _Cached:
        """Read each distinct neighbouring prompt once, then give every row its copy."""
        distinct, row_of = _distinct(prompts)
        longest = max(len(ids) for ids in distinct)
        padded = [[0] * (longest - len(ids)) + list(ids) for ids in distinct]
        lengths = torch.tensor([len(ids) for ids in distinct], device=policy.device)
        ids = torch.tensor(padded, device=policy.device)
        columns = torch.arange(longest, device=policy.device)[None, :]
        padding = longest - lengths[:, None]
        mask = (columns >= padding).long() if padding.any() else None
        cache = DynamicCache(config=policy.model.config.get_text_config(decoder=True))
        logits = cls._read(
            policy.model, ids, mask, (columns - padding).clamp(min=0), cache, logits_to_keep=1
        )
        rows = torch.tensor(row_of, device=policy.device)
        cache.reorder_cache(rows)  # type: ignore[arg-type]
        return cls(
            model=policy.model,
            cache=cache,
            logits_BV=logits[rows],
            alive=torch.arange(len(prompts), device=policy.device),
            positions_B=lengths[rows],
            mask=None if mask is None else mask[rows],
        )

    @staticmethod
    def _read(
        model: Any,
        ids: Tensor,
        mask: Tensor | None,
        positions: Tensor,
        cache: DynamicCache,
        **more: Any,
    ) -> Tensor:
        named = "past_key_values" if takes(model, "past_key_values") else "cache_params"
        inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions, named: cache}
        return forward(model, **inputs, use_cache=True, **more)[:, -1]

    def advance(self, chosen_B: Tensor, going: list[int]) -> None:
        if len(going) < len(chosen_B):
            self._keep(torch.tensor(going, device=chosen_B.device))
            chosen_B = chosen_B[going]
        if self.mask is not None:
            self.mask = torch.cat([self.mask, self.mask.new_ones(len(chosen_B), 1)], dim=1)
        self.logits_BV = self._read(
            self.model, chosen_B[:, None], self.mask, self.positions_B[:, None], self.cache
        )
        self.positions_B = self.positions_B + 1

    def _keep(self, going: Tensor) -> None:
        self.cache.reorder_cache(going)  # type: ignore[arg-type]
        self.alive = self.alive[going]
        self.positions_B = self.positions_B[going]
        self.mask = None if self.mask is None else self.mask[going]


@dataclass
class _Plain:
    """Rows as the trainer reads them, filled up on the right: nothing looks right."""

    policy: Policy
    texts: list[tuple[int, ...]]
    logits_BV: Tensor  # noqa: N815 - shape suffix
    alive: Tensor

    @classmethod
    def begin(cls, policy: Policy, prompts: Sequence[tuple[int, ...]]) -> _Plain:
        alive = torch.arange(len(prompts), device=policy.device)
        return cls(policy, list(prompts), _last_logits(policy, prompts), alive)

    def advance(self, chosen_B: Tensor, going: list[int]) -> None:
        chosen = chosen_B.tolist()
        self.texts = [(*self.texts[place], chosen[place]) for place in going]
        self.alive = self.alive[going]
        self.logits_BV = _last_logits(self.policy, self.texts)


def _last_logits(policy: Policy, texts: Sequence[tuple[int, ...]]) -> Tensor:
    longest = max(len(text) for text in texts)
    ids = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
    last = torch.tensor([len(text) - 1 for text in texts], device=policy.device)
    logits = forward(policy.model, input_ids=ids.to(policy.device), use_cache=False)
    return logits[torch.arange(len(texts), device=policy.device), last]


def _distinct(prompts: Sequence[tuple[int, ...]]) -> tuple[list[tuple[int, ...]], list[int]]:
    """Runs of equal prompts as (each once, index into them for every row)."""
    distinct: list[tuple[int, ...]] = []
    row_of: list[int] = []
    for prompt, run in groupby(prompts):
        row_of += [len(distinct)] * len(list(run))
        distinct.append(prompt)
    return distinct, row_of
