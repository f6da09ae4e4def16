"""GSM8K as published: `question`, and `answer` as a worked answer that ends in `#### 18`."""

from __future__ import annotations

from engine.contract.sources.layouts.reading import Part, Reading, hashed
from engine.contract.sources.values import Columns

NAME = "gsm8k"
WANTS = "question, and answer with its #### 18"


def recognise(row: Columns) -> Reading | None:
    """The number is the answer, the whole text the worked solution."""
    if "question" not in row or "####" not in str(row.get("answer", "")):
        return None
    answer = Part("answer", hashed)
    return Reading(NAME, "GSM8K rows", Part("question"), answer, Part("answer"))
