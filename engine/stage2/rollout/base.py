"""Rollouts of stage-2: what a prompt was answered, and the seam that makes the model answer.

A backend gets all prompts of a step at once, with the step's seed base, and answers them in
order. Torch-free of any backend; knows no ground truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.stage2.rollout.prompts import Prompt

_STRIDE = 1_000_003
_MASK = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Response:
    """One answer as token ids; text is only for people."""

    ids: tuple[int, ...]
    """Without `<|im_end|>` and what stands behind it."""
    ended: bool
    """It ended its turn; else it was cut at the length limit or by the repeat guard."""
    guarded: bool = False
    """The repeat guard ended it."""


class Sampler(Protocol):
    """The rollout seam of Channel-B and of the evaluation."""

    def __call__(self, prompts: Sequence[Prompt], seed_base: int) -> list[Response]:
        """One answer for each prompt under the current weights.

        A slice of `prompts` may be read from disk each time it is taken: take each once.
        """
        ...

    def decoding(self) -> dict[str, Any]:
        """How it decodes, for people who ask how a step's answers came about."""
        ...


def seed_base(training_seed: int, step: int) -> int:
    """(seed + step · 1000003) & 0x7FFFFFFF: the base of a Channel-B step's rollouts.

    >>> seed_base(123, 7)
    7000144
    """
    return (training_seed + step * _STRIDE) & _MASK


def call_seed(base: int, first_index: int) -> int:
    """The seed of one decode call: the base plus the index of its first request."""
    return (base + first_index) & _MASK
