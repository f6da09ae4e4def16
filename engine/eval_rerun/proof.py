"""What an `eval_rerun` proves before its first row: the sampler draws what the model says."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import torch

from engine.data.rows import Question
from engine.evaluate.bench import EvalUnit
from engine.models.forward import forward
from engine.models.logprobs import log_softmax
from engine.models.policy import Policy
from engine.run.proof import Check, Measured
from engine.sampling.base import Rollout
from engine.sampling.decoding import TOLERANCE
from engine.sampling.prompts import PromptBuilder

_ROWS, _SAMPLES, _TOKENS = 4, 2, 8


def checks(
    unit: EvalUnit, policy: Policy, prompts: PromptBuilder, rows: Sequence[Question]
) -> Sequence[Check]:
    """A few completions, each read again alone and without a cache."""

    def sampler() -> Measured:
        few = replace(unit, max_new_tokens=min(unit.max_new_tokens, _TOKENS))
        groups = few.sampler(policy, prompts)(rows[:_ROWS], _SAMPLES)
        gaps = [_gap(policy, rollout, unit.temp) for group in groups for rollout in group]
        worst = next((gap for gap in gaps if gap != gap), max(gaps))  # noqa: PLR0124 - NaN
        return Measured(worst, TOLERANCE[policy.precision] / min(1.0, unit.temp or 1.0))

    return [
        Check(
            "sampler",
            "the sampler's log-probabilities and those of a plain forward pass differ, in nats a "
            "token of the worst completion",
            "what is sampled is not what the model says: name another base, and report the "
            "architecture",
            sampler,
        )
    ]


def _gap(policy: Policy, rollout: Rollout, temp: float) -> float:
    ids = (*rollout.prompt_ids, *rollout.completion_ids)
    first = len(rollout.prompt_ids) - 1
    with torch.inference_mode(), policy.computing():
        read = torch.tensor([ids], device=policy.device)
        logits_TV = forward(policy.model, input_ids=read, use_cache=False)[0, first:-1]
        targets_T = torch.tensor(rollout.completion_ids, device=policy.device)
        plain_T = log_softmax(logits_TV, temp).gather(-1, targets_T[:, None])[:, 0].tolist()
    return statistics.fmean(abs(a - b) for a, b in zip(rollout.logprobs, plain_T, strict=True))
