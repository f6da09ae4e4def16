"""Section `heldout`: benches that a run is judged by, beside its own held-out rows.

A bench's rows never train. Those of one that does not decide pick nothing either, so all of them
stand behind its verdict.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from engine.contract.paths import located
from engine.contract.section import refusal
from engine.contract.sources.mixture import JudgedSource
from engine.contract.verifiers import VerifierName

OWN = "own"
"""The name of the run's own held-out rows, as `decide` and tables say it."""


def label_of(name: str, shots: int) -> str:
    """What people call a bench."""
    return f"{name} ({shots}-shot)" if shots else name


class BenchConfig(JudgedSource):
    """A bench that gates score. Temperature, limits and shots are the bench's own."""

    task: str | None = None
    """A task of lm-evaluation-harness instead of `source`: refused, for none runs here."""
    temp: float | None = Field(None, ge=0, le=10)
    """Sampling temperature; without one the run's `heldout_temp`. 0 is greedy."""
    max_new_tokens: int | None = Field(None, ge=1, le=131_072)
    """Longest completion, in tokens; without one the run's."""
    shots: int = Field(0, ge=0, le=64)
    """Worked examples in front of each question: the template's own, as `gsm8k_cot` and
    `minerva_math` have them, or rows of `shots_from`. 0 is off; part of what is measured."""
    shots_from: str | None = None
    """A file of training rows, with the bench's own fields, that the examples are drawn from: anew
    for each row, from one stream, as lm-evaluation-harness does (seed 1234)."""
    also: list[VerifierName] = Field([], max_length=8)
    """Verifiers that judge the same completions too, each for a curve of its own
    (`heldout/NAME/as/math`). They pick nothing and decide nothing."""
    every: int = Field(1, ge=1)
    """Score it at each so-manieth gate; always before step 1, and at the checkpoint that is
    picked."""

    @field_validator("shots_from")
    @classmethod
    def _absolute_pool(cls, path: str | None) -> str | None:
        return None if path is None else str(located(path))

    @field_validator("also")
    @classmethod
    def _verifiers_alone(cls, names: list[str]) -> list[str]:
        for name in names:
            if ":" in name:
                raise ValueError(
                    f"{name!r} is a reward function, which judges afterwards: cockpit rescore"
                )
        return list(dict.fromkeys(names))

    def __hash__(self) -> int:
        """A list has none; what is kept of a file is found by its bench."""
        return hash((self.name, self.source))

    @property
    def pool(self) -> Self | None:
        """The source that its examples are drawn from, read as its rows are."""
        if self.shots_from is None:
            return None
        return self.model_copy(update={"source": self.shots_from, "limit": None})

    @property
    def label(self) -> str:
        """Its name with its shots, as tables and sentences say it.

        >>> BenchConfig(name="cot", source="test.jsonl", shots=8).label
        'cot (8-shot)'
        """
        return label_of(self.name, self.shots)

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
