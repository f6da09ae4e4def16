"""Drawing one token a row: temperature, and the filters and penalties that were asked for.

Inverse-CDF sampling with one uniform number a row, so a draw is the same in every batch. Order of
what reshapes the distribution, as vLLM has it: repetition penalty on the logits, temperature,
top-k, top-p, min-p. Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.contract.rl.sampling import SamplingConfig
from engine.models.logprobs import log_softmax

_CELLS = 2**24
"""Probabilities turned into a cumulative sum at once; bounds the memory of a large vocabulary."""

PLAIN = SamplingConfig()
"""Temperature alone."""


class Drawn(NamedTuple):
    """One token a row."""

    tokens_B: Tensor  # noqa: N815 - shape suffix
    logprobs_B: Tensor  # noqa: N815 - shape suffix
    """log π at the temperature, over the full vocabulary: what the trainer reads as well."""
    shifts_B: Tensor | None  # noqa: N815 - shape suffix
    """log q − log π, where q is what was drawn from; None where that is π itself."""


def draw(
    logits_BV: Tensor,
    uniforms_B: Tensor,
    temp: float,
    sampling: SamplingConfig,
    seen: Sequence[Sequence[int]] = (),
) -> Drawn:
    """One token a row; the argmax at temperature 0.

    `seen` are each row's prompt and completion so far; only a repetition penalty reads them.
    """
    log_p_BV = log_softmax(logits_BV, temp)
    if sampling.plain:
        tokens_B = _choose(log_p_BV, uniforms_B, temp)
        return Drawn(tokens_B, _at(log_p_BV, tokens_B), None)
    log_q_BV = _reshaped(logits_BV, temp, sampling, seen)
    tokens_B = _choose(log_q_BV, uniforms_B, temp)
    logprobs_B = _at(log_p_BV, tokens_B)
    shifts_B = _at(log_q_BV, tokens_B) - logprobs_B if temp else torch.zeros_like(logprobs_B)
    return Drawn(tokens_B, logprobs_B, shifts_B)


def _at(log_p_BV: Tensor, tokens_B: Tensor) -> Tensor:
    return log_p_BV.gather(1, tokens_B[:, None]).squeeze(1)


def _choose(log_p_BV: Tensor, uniforms_B: Tensor, temp: float) -> Tensor:
    if temp == 0:
        return log_p_BV.argmax(-1)
    size = max(1, _CELLS // log_p_BV.shape[1])
    chosen = []
    parts = zip(torch.split(log_p_BV, size), torch.split(uniforms_B, size), strict=True)
    for log_p, uniforms in parts:
        cumulative = log_p.exp().cumsum(-1, dtype=torch.float64)
        target = uniforms[:, None] * cumulative[:, -1:]
        # right=True steps over tokens of probability zero
        chosen.append(torch.searchsorted(cumulative, target, right=True).squeeze(1))
    return torch.cat(chosen).clamp_(max=log_p_BV.shape[1] - 1)


def _reshaped(
    logits_BV: Tensor, temp: float, sampling: SamplingConfig, seen: Sequence[Sequence[int]]
) -> Tensor:
    """log q: dropped tokens are −inf, the others share the whole probability."""
    if sampling.repetition_penalty != 1.0:
        logits_BV = _penalised(logits_BV, sampling.repetition_penalty, seen)
    log_q_BV = log_softmax(logits_BV, temp)
    if sampling.top_k:
        kth = log_q_BV.topk(min(sampling.top_k, log_q_BV.shape[1]), dim=-1).values[:, -1:]
        log_q_BV = _without(log_q_BV, log_q_BV < kth)
    if sampling.top_p < 1.0:
        log_q_BV = _without(log_q_BV, _outside_nucleus(log_q_BV, sampling.top_p))
    if sampling.min_p:
        floor = log_q_BV.max(-1, keepdim=True).values + torch.tensor(sampling.min_p).log()
        log_q_BV = _without(log_q_BV, log_q_BV < floor)
    return log_q_BV


def _penalised(logits_BV: Tensor, penalty: float, seen: Sequence[Sequence[int]]) -> Tensor:
    """Logits of tokens seen before, divided by the penalty or, below zero, multiplied by it.

    CTRL (arXiv 1909.05858, section 4.1) as transformers and vLLM read it.
    """
    seen_BV = torch.zeros_like(logits_BV, dtype=torch.bool)
    for row, ids in enumerate(seen):
        seen_BV[row, list(ids)] = True
    damped_BV = torch.where(logits_BV > 0, logits_BV / penalty, logits_BV * penalty)
    return torch.where(seen_BV, damped_BV, logits_BV)


def _outside_nucleus(log_q_BV: Tensor, top_p: float) -> Tensor:
    """True outside the smallest set of most probable tokens that holds `top_p`."""
    sorted_BV, order_BV = log_q_BV.sort(dim=-1, descending=True)
    before_BV = sorted_BV.exp().cumsum(-1) - sorted_BV.exp()
    return torch.zeros_like(before_BV, dtype=torch.bool).scatter(1, order_BV, before_BV >= top_p)


def _without(log_q_BV: Tensor, dropped_BV: Tensor) -> Tensor:
    return torch.log_softmax(log_q_BV.masked_fill(dropped_BV, -torch.inf), dim=-1)
