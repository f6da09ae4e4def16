"""TRL: `prompt` as text or messages, and columns that reward functions read by their names."""

from __future__ import annotations

from engine.contract.sources.layouts.plain import ANSWERS
from engine.contract.sources.layouts.reading import Part, Reading, final, first_of, has
from engine.contract.sources.values import Columns

NAME = "trl"
WANTS = f"prompt, and one of {', '.join((*ANSWERS, 'solution'))} for a verifier"


def recognise(row: Columns) -> Reading | None:
    """`solution` is the gold where rows have no other, as TRL's own rewards read it."""
    if not has(row, "prompt"):
        return None
    gold = first_of(row, (*ANSWERS, "solution"))
    answer = None if gold is None else Part(gold, final if gold != "answer" else None)
    solution = "solution" if has(row, "solution") else None
    return Reading(NAME, "TRL rows", Part("prompt"), answer, Part(solution) if solution else None)
