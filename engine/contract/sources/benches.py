"""Section `heldout`: benches that a run is judged by, beside its own held-out rows.

A bench's rows never train. Those of one that does not decide pick nothing either, so all of them
stand behind its verdict.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from engine.contract.section import refusal
from engine.contract.sources.mixture import JudgedSource

OWN = "own"
"""The name of the run's own held-out rows, as `decide` and tables say it."""


class BenchConfig(JudgedSource):
    """A bench that gates score. Temperature, limits and shots are the bench's own."""

    task: str | None = None
    """A task of lm-evaluation-harness instead of `source`: refused, for none runs here."""
    temp: float | None = Field(None, ge=0, le=10)
    """Sampling temperature; without one the run's `heldout_temp`. 0 is greedy."""
    max_new_tokens: int | None = Field(None, ge=1, le=131_072)
    """Longest completion, in tokens; without one the run's."""
    every: int = Field(1, ge=1)
    """Score it at each so-manieth gate; always before step 1, and at the checkpoint that is
    picked."""

    @model_validator(mode="before")
    @classmethod
    def _no_task(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("task") is not None:
            raise refusal(
                ["task"],
                data["task"],
                "names a task of lm-evaluation-harness, and runs score rows of their own alone; "
                "name the bench's rows with source and their judge with verifier",
            )
        return data
