"""The completions of each step as JSON lines, and back again: a row that is finished stays so.

`rollouts/train-NNNNNN.jsonl`, as of every kind that samples, is written whole; one that is torn is
sampled again, to the same completions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.contract.documents import MAX_ROWS_BYTES, parse_json, read_text
from engine.contract.jsonl import write_rows
from engine.data.rows import Question


@dataclass(frozen=True)
class Journal:
    """Of one run directory's `rollouts/`."""

    folder: Path

    def recall(
        self, step: int, tasks: Sequence[Question], samples: int
    ) -> list[list[Mapping[str, Any]]] | None:
        """The completions of each task; None unless all of them are there."""
        try:
            text = read_text(self._path(step), MAX_ROWS_BYTES)
            # Not by `splitlines`: a completion may hold a line separator of Unicode, unescaped.
            rows = [parse_json(line) for line in text.removesuffix("\n").split("\n")]
            found = {(row["id"], row["sample"]): row for row in rows}
            return [[found[task.id, sample] for sample in range(samples)] for task in tasks]
        except (OSError, KeyError, TypeError):
            return None

    def write(self, step: int, lines: Sequence[Mapping[str, Any]]) -> None:
        """All that a step sampled."""
        write_rows(self._path(step), lines)

    def forget(self) -> None:
        """Another model may have written it."""
        for path in self.folder.glob("train-*.jsonl"):
            path.unlink()

    def _path(self, step: int) -> Path:
        return self.folder / f"train-{step:06d}.jsonl"
