"""What a run of the harness gives, and what it is told to skip. Imports no lm_eval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """One completion that the harness got."""

    row: str
    """The row's id."""
    prompt: str
    """What the model read, worked examples and chat template with it."""
    text: str
    """Up to the first stop text."""
    truncated: bool
    """Neither an end token nor a stop text came before the limit."""
    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    """As drawn: what follows a stop text is in them."""


@dataclass(frozen=True)
class HarnessItem:
    """An answer with the harness's own scores."""

    answer: Answer
    scores: Mapping[str, float]
    """By filter of the task, each a part of one; of `inst_level_strict_acc` the share followed."""


@dataclass(frozen=True)
class HarnessResult:
    """All rows of a bench, in their order."""

    items: Sequence[HarnessItem]
    metrics: Mapping[str, float]
    """By filter of the task, as the harness aggregates it; a group weights its rows."""
    version: str
    """Of lm_eval."""


Recall = Callable[[str, str], Answer | None]
"""From row id and prompt to the answer that an attempt before got; None: ask the model."""
OnItem = Callable[[Answer], None]
"""Told of each new answer as its batch ends, before anything is scored."""
