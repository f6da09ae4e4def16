"""Questions: where they come from, as one list. Knows no model and no split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.contract.kinds.rl_run import DataConfig, read_rows
from engine.data import addition


@dataclass(frozen=True)
class Question:
    """One row of a corpus."""

    id: str
    prompt: str
    answer: str


@dataclass(frozen=True)
class Bench:
    """A corpus with a name; the loop needs nothing of it but `questions`."""

    name: str
    questions: Sequence[Question]


def load(config: DataConfig) -> Bench:
    """Raises RLLoopError when a JSONL file cannot be read."""
    if config.source == addition.SOURCE:
        rows = addition.rows()[: config.limit]
        return Bench("addition", [Question(*row) for row in rows])
    path = Path(config.source)
    rows_read = read_rows(path, config)
    return Bench(path.stem, [Question(r["id"], r["prompt"], r["answer"]) for r in rows_read])
