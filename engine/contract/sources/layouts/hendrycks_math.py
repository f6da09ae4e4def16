r"""MATH as published: `problem`, and `solution` with the answer in its last `\boxed{}`."""

from __future__ import annotations

from engine.contract.sources.layouts.reading import Part, Reading, boxed, has
from engine.contract.sources.values import Columns

NAME = "math"
WANTS = "problem, and solution with its \\boxed{}"


def recognise(row: Columns) -> Reading | None:
    """A column `answer`, as MATH-500 has it, is taken as it is: those are plain rows."""
    if not has(row, "problem", "solution") or has(row, "answer"):
        return None
    ids = ("id", "unique_id")
    answer = Part("solution", boxed)
    return Reading(NAME, "MATH rows", Part("problem"), answer, Part("solution"), ids)
