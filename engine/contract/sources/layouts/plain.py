"""A question and its answer under names that many files have."""

from __future__ import annotations

from engine.contract.sources.layouts.reading import Part, Reading, boxed, final, first_of, has
from engine.contract.sources.values import Columns

NAME = "plain"
QUESTIONS = ("prompt", "question", "problem", "query", "instruction", "input")
ANSWERS = (
    "answer", "final_answer", "ground_truth", "expected_answer", "expected", "gold", "target",
    "label", "output", "response",
)  # fmt: skip
WANTS = f"one of {', '.join(QUESTIONS)} and one of {', '.join(ANSWERS)}"


def recognise(row: Columns) -> Reading | None:
    r"""A worked `solution` with a box is the answer where there is no other."""
    question = first_of(row, QUESTIONS)
    gold = first_of(row, ANSWERS)
    if question is None or (gold is None and not has(row, "solution")):
        return None
    if gold is None:
        answer = Part("solution", boxed)
    else:
        # the format of this project's own files: what stands there is meant
        answer = Part(gold, None if (question, gold) == ("prompt", "answer") else final)
    solution = Part("solution") if has(row, "solution") else None
    ids = ("id", "unique_id")
    return Reading(NAME, "questions and answers", Part(question), answer, solution, ids)
