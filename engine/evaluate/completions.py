"""What a line of a held-out rollout file says of its row, so that the completion can be judged
again without the source: what was asked, what is right, and how results are split.
"""

from __future__ import annotations

from typing import Any

from engine.data.rows import Question
from engine.sampling.base import Rollout

SPLIT_BY = ("level", "subject", "type", "difficulty", "category")
"""Columns of benchmarks by which results are split: those that a row has go with it."""
_LONGEST = 80
"""Characters of such a value; a longer one is a text and splits nothing."""


def asked_and_gold(question: Question, rollout: Rollout) -> dict[str, Any]:
    """The fields of a line that are the row's own, and how its completion ended."""
    return {
        "prompt": question.prompt,
        "gold": question.answer,
        "columns": split_columns(question),
        "finish_reason": "length" if rollout.truncated else "stop",
    }


def split_columns(question: Question) -> dict[str, Any]:
    """`{"level": "Level 3"}`: the short values of a row by which results are split."""
    known = {name: question.columns.get(name) for name in SPLIT_BY}
    return {
        name: value
        for name, value in known.items()
        if isinstance(value, str | int | float)
        and not isinstance(value, bool)
        and len(str(value)) <= _LONGEST
    }
