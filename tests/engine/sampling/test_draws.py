"""Filters and penalties: off unless asked for, and then what their papers say."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.contract.rl.sampling import SamplingConfig
from engine.sampling.draws import PLAIN, draw

# log-probabilities of 0.5, 0.3, 0.15, 0.05
LOGITS = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()


def reached(sampling: SamplingConfig, seen: tuple[int, ...] = ()) -> dict[int, float]:
    """Which tokens a fine grid of uniform numbers draws, with the share of each."""
    grid = torch.arange(1000, dtype=torch.float64) / 1000
    logits = LOGITS.expand(1000, -1)
    drawn = draw(logits, grid, 1.0, sampling, [seen] * 1000)
    return {token: count / 1000 for token, count in Counter(drawn.tokens_B.tolist()).items()}


def test_nothing_is_on_by_default() -> None:
    """Every token is drawn as often as it is probable, and there is no shift."""
    assert PLAIN.plain
    assert reached(PLAIN) == pytest.approx({0: 0.5, 1: 0.3, 2: 0.15, 3: 0.05}, abs=2e-3)
    assert draw(LOGITS, torch.tensor([0.1]), 1.0, PLAIN).shifts_B is None


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"top_k": 2}, {0: 0.625, 1: 0.375}),
        ({"top_p": 0.49}, {0: 1.0}),
        ({"top_p": 0.51}, {0: 0.625, 1: 0.375}),
        ({"min_p": 0.2}, {0: 0.526, 1: 0.316, 2: 0.158}),
        ({"top_k": 3, "top_p": 0.8}, {0: 0.625, 1: 0.375}),
    ],
)
def test_a_filter_keeps_what_it_says_and_shares_the_rest_out(
    settings: dict[str, Any], expected: dict[int, float]
) -> None:
    """Worked out by hand on four tokens."""
    assert reached(SamplingConfig(**settings)) == pytest.approx(expected, abs=2e-3)


def test_a_repetition_penalty_damps_tokens_seen_before() -> None:
    """Logits below zero are multiplied: log 0.5 · 2 leaves a quarter of its weight to share."""
    weights = torch.tensor([0.25, 0.3, 0.15, 0.05])
    expected = dict(enumerate((weights / weights.sum()).tolist()))

    assert reached(SamplingConfig(repetition_penalty=2.0), (0, 0)) == pytest.approx(
        expected, abs=2e-3
    )


@pytest.mark.parametrize("temp", [0.7, 1.4])
def test_they_agree_with_transformers(temp: float) -> None:
    """The same distribution as its logits processors, on random rows."""
    torch.manual_seed(3)
    logits = torch.randn(64, 50) * 3
    seen = torch.randint(0, 50, (64, 12))
    sampling = SamplingConfig(top_k=20, top_p=0.9, min_p=0.01, repetition_penalty=1.3)
    theirs = RepetitionPenaltyLogitsProcessor(1.3)(seen, logits) / temp
    warpers: list[Any] = [TopKLogitsWarper(20), TopPLogitsWarper(0.9), MinPLogitsWarper(0.01)]
    for warper in warpers:
        theirs = warper(seen, theirs)

    uniforms = torch.rand(64, dtype=torch.float64)
    drawn = draw(logits, uniforms, temp, sampling, seen.tolist())

    assert drawn.shifts_B is not None
    log_q = torch.log_softmax(theirs, -1)
    expected: Tensor = log_q.gather(1, drawn.tokens_B[:, None]).squeeze(1)
    assert torch.allclose(drawn.logprobs_B + drawn.shifts_B, expected, atol=1e-5)
    cumulative = log_q.exp().double().cumsum(-1)
    chosen = torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True)
    assert torch.equal(drawn.tokens_B, chosen.squeeze(1))


@pytest.mark.requirement("EX-01")
def test_the_recorded_logprob_is_of_the_full_distribution_whatever_filters_do() -> None:
    """One convention with the trainer; what the filter moved is the shift beside it."""
    uniforms = torch.tensor([0.9])

    drawn = draw(LOGITS, uniforms, 1.0, SamplingConfig(top_k=2))

    assert drawn.tokens_B.tolist() == [1]
    assert drawn.shifts_B is not None
    assert drawn.logprobs_B.exp().item() == pytest.approx(0.3)
    assert (drawn.logprobs_B + drawn.shifts_B).exp().item() == pytest.approx(0.375)


def test_greedy_takes_the_argmax_and_reports_no_shift() -> None:
    """At temperature 0 there is no distribution to be away from; a penalty still counts."""
    penalised = SamplingConfig(repetition_penalty=3.0)

    plain = draw(LOGITS, torch.tensor([0.99]), 0.0, PLAIN)
    damped = draw(LOGITS, torch.tensor([0.99]), 0.0, penalised, [(0,)])

    assert (plain.tokens_B.tolist(), damped.tokens_B.tolist()) == ([0], [1])
    assert damped.shifts_B is not None
    assert damped.shifts_B.tolist() == [0.0]
