"""Section `format`: teaching a model the form of an answer, and then no longer paying for it.

Five means, each off by default: a reward for form alone, a lenient verifier at first, worked
examples before the question, format pre-training, and (afterwards, `cockpit export-sft`) data
from completions that were right and well-formed. All but the last fade with the steps, and a
held-out gate knows none of them: it asks the bare question and judges strictly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from engine.contract.errors import ConfigProblem
from engine.contract.section import Section
from engine.contract.verifiers import VerifierName

ANSWER = "{answer}"
Shape = Literal["answer_is", "boxed", "hashes", "minerva", "think", "answer_tag"]
"""What the verifier `format` knows by name."""


class FormatPretrainConfig(Section):
    """Supervised training on worked answers, before any warm-up, until the form is there."""

    rows: int = Field(64, ge=1)
    """Training rows whose worked answers are shown; the first of the split's shuffle."""
    target: float = Field(0.9, gt=0, le=1)
    """Stop when this share of the completions looked at is well-formed, right or wrong."""
    eval_rows: int = Field(64, ge=1)
    """How many `select` rows a look asks, at most."""
    eval_every: int = Field(10, ge=1)
    """Steps between two looks."""
    max_steps: int = Field(200, ge=1)
    """Give up here: the run fails when the target was not reached."""
    batch_size: int = Field(16, ge=1)
    """Rows per step."""
    lr: float = Field(1e-4, gt=0, lt=1)
    """AdamW's learning rate meanwhile."""


class FormatConfig(Section):
    """How the form of an answer is taught. What is paid or shown at first fades to nothing."""

    shape: Shape | None = None
    """The form by name: `answer_is` (The answer is 5.), `boxed`, `hashes` (#### 5), `minerva`,
    `think`, `answer_tag`.

    Without shape and pattern a completion is well-formed when the verifier can read an answer.
    """
    pattern: str | None = None
    """The form as a regular expression that a well-formed completion contains."""
    composition: Literal["gated", "added"] = "gated"
    """`gated`: an answer pays only in its form. `added`: what the form pays comes on top."""
    reward: float = Field(0.0, ge=0, lt=1)
    """Paid for form alone, 0.1 for example; falls to 0 with the steps. 0 is off."""
    reward_until: int | None = Field(None, ge=1)
    """Step after which form alone pays nothing; half of `max_steps` by default."""
    lenient: VerifierName | None = None
    """A second verifier that pays answers in any form at first; `gsm8k_any` for example."""
    lenient_until: int | None = Field(None, ge=1)
    """Step after which it pays nothing, falling linearly; half of `max_steps` by default."""
    shots: int = Field(0, ge=0, le=32)
    """Worked examples from the training rows that stand before the question at first. 0 is off."""
    shots_until: int | None = Field(None, ge=1)
    """Step after which none is left; half of `max_steps` by default."""
    demonstration: str = ANSWER
    """How a worked answer is written for a row without a `solution`: `The answer is {answer}.`"""
    pretrain: FormatPretrainConfig | None = None
    """Format pre-training before step 0; none by default."""

    @field_validator("pattern")
    @classmethod
    def _pattern(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"is no regular expression: {error}; correct it") from None
        return pattern

    @field_validator("demonstration")
    @classmethod
    def _demonstration(cls, text: str) -> str:
        if text.count(ANSWER) != 1:
            raise ValueError("must hold {answer} once; write e.g. 'The answer is {answer}.'")
        return text

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.shape and self.pattern:
            raise ValueError("shape and pattern name two forms; keep one of them")
        return self

    @property
    def shapes_reward(self) -> bool:
        """Whether training pays anything but the verifier's reward."""
        return bool(self.reward or self.lenient or self.pattern or self.shape)

    def reward_at(self, step: int, max_steps: int) -> float:
        """What form alone pays at a step, counted from 1."""
        return self.reward * _left(step, self.reward_until, max_steps)

    def lenient_at(self, step: int, max_steps: int) -> float:
        """Share of its reward that an answer in another form still gets."""
        return _left(step, self.lenient_until, max_steps) if self.lenient else 0.0

    def shots_at(self, step: int, max_steps: int) -> int:
        """How many worked examples stand before the question."""
        return math.ceil(self.shots * _left(step, self.shots_until, max_steps))


def _left(step: int, until: int | None, max_steps: int) -> float:
    """1 at the first step, linearly down to 0 at the step behind `until`.

    >>> [_left(step, 4, 100) for step in (1, 2, 5, 6)]
    [1.0, 0.75, 0.0, 0.0]
    """
    last = until or max(1, max_steps // 2)
    return max(0.0, 1.0 - (step - 1) / last)


def format_problems(
    config: FormatConfig, *, max_steps: int, success_threshold: float
) -> Sequence[ConfigProblem]:
    """What does not fit the rest of the run: form that counts as success, or that never fades."""
    found: list[ConfigProblem] = []
    if config.reward and config.reward >= success_threshold:
        problem = f"would count as solved at success_threshold={success_threshold}"
        found.append(ConfigProblem("format.reward", config.reward, problem, "pay less, e.g. 0.1"))
    for name in ("reward", "lenient", "shots"):
        until = getattr(config, f"{name}_until")
        if getattr(config, name) and until is not None and until >= max_steps:
            problem = f"lasts to the end of a run of max_steps={max_steps}"
            remedy = f"use less than {max_steps}, so that the last steps count what the gate counts"
            found.append(ConfigProblem(f"format.{name}_until", until, problem, remedy))
    return found
