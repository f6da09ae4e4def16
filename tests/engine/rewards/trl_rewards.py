"""Reward functions as people write them for TRL's GRPOTrainer; none knows this project."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from typing import Any


def accuracy_reward(completions, answer, log_extra=None, **kwargs):  # type: ignore[no-untyped-def]
    """Exact match; None where the gold cannot be read."""
    contents = [c if isinstance(c, str) else c[0]["content"] for c in completions]
    if log_extra is not None:
        log_extra("gold", list(answer))
    return [
        None if gold is None else float(content.strip() == str(gold))
        for content, gold in zip(contents, answer, strict=True)
    ]


def think_format_reward(completions: list[list[dict[str, str]]], **kwargs: Any) -> list[float]:
    """Whether the thought is enclosed in think tags."""
    pattern = r"^<think>(?!.*<think>)(.*?)</think>.*$"
    contents = [completion[0]["content"] for completion in completions]
    matches = [re.match(pattern, content, re.DOTALL | re.MULTILINE) for content in contents]
    return [1.0 if match else 0.0 for match in matches]


class LengthPenalty:
    """A callable object, over token ids, without **kwargs."""

    def __call__(self, completion_ids: list[list[int]]) -> list[float]:
        return [-0.1 * len(ids) for ids in completion_ids]


length_penalty = LengthPenalty()


async def judge(prompts, completions, log_metric, **kwargs):  # type: ignore[no-untyped-def]
    """An async judge that logs how sure it is."""
    await asyncio.sleep(0.01)
    log_metric("judge/sure", 0.75)
    return [0.5 for _ in prompts]


def by_step(completions, trainer_state, **kwargs):  # type: ignore[no-untyped-def]
    """Pays by how far the run is."""
    return [float(trainer_state.global_step)] * len(completions)


def columns_seen(completions, **kwargs):  # type: ignore[no-untyped-def]
    """Logs every name that it was given."""
    kwargs["log_extra"]("names", [",".join(sorted(kwargs))] * len(completions))
    return [float(len(kwargs["level"][0]))] * len(completions)


def prompts_seen(prompts, completions, log_extra, **kwargs):  # type: ignore[no-untyped-def]
    """Logs prompt and completion as they came."""
    log_extra("prompt", [repr(p) for p in prompts])
    log_extra("completion", [repr(c) for c in completions])
    return [float(len(prompts))] * len(prompts)


def predicted_is(predicted: str, expected: str) -> float:
    """The seed's verifier."""
    return float(predicted == expected)


async def predicted_soon(predicted: str, expected: str) -> bool:
    """The same, async."""
    return predicted == expected


# --- what goes wrong ---


def picky(completions, **kwargs):  # type: ignore[no-untyped-def]
    """Raises for one of them, and with it for all."""
    if any(c == "odd" for c in completions):
        raise ValueError("odd completion")
    return [1.0 for _ in completions]


def sleepy(completions, **kwargs):  # type: ignore[no-untyped-def]
    """Hangs on one of them."""
    if any(c == "hang" for c in completions):
        time.sleep(600)
    return [1.0 for _ in completions]


def dies(completions, **kwargs):  # type: ignore[no-untyped-def]
    """Takes its process with it."""
    if any(c == "die" for c in completions):
        os._exit(3)
    return [1.0 for _ in completions]


def exits(completions, **kwargs):  # type: ignore[no-untyped-def]
    sys.exit(3)


def needs_a_column(completions, difficulty, **kwargs):  # type: ignore[no-untyped-def]
    return [1.0 for _ in completions]


def three(a, b, c):  # type: ignore[no-untyped-def]
    return 1.0


def strict(completions, **kwargs):  # type: ignore[no-untyped-def]
    """Knows two completions alone."""
    return [{"yes": 1.0, "no": 0.0}[c] for c in completions]
