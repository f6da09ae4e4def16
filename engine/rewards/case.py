"""One completion to be judged, with all that a reward function may ask about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Messages = Sequence[Mapping[str, Any]]
"""A conversation: `[{"role": "user", "content": "…"}]`."""


class Case(NamedTuple):
    """A pair (completion, expected) is one too; verifiers read no more of it."""

    completion: str
    expected: str
    prompt: str | Messages = ""
    """As the row has it: a text, or messages with their system turn."""
    ids: Sequence[int] = ()
    """Of the completion, with its end token."""
    columns: Mapping[str, Any] = {}
    """Of the row, by their own names."""
    step: int = 0
    """Optimizer steps that the weights have had."""
    verifier: str = ""
    """Who judges it; empty where the run's own rewards do."""
