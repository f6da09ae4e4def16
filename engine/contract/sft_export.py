"""Rejection-sampled data: completions of a run that were right and well-formed, as SFT rows.

Reads the run directory's `rollouts/train-*.jsonl`; what a held-out gate sampled is never touched.
Torch-free. Knows no verifier: the reason that stands in each line decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.contract.documents import UnreadableError, byte_lines, opened, parse_json
from engine.contract.outputs import write_output
from engine.contract.run_dir import RunDir

CORRECT = "correct"
"""The reason of a completion that was right in the form asked for; `lenient` is another."""


@dataclass(frozen=True)
class SFTRow:
    """One example: what was asked, and a completion that earned the whole reward."""

    id: str
    prompt: str
    """The question, without template, system prompt and examples."""
    completion: str
    step: int
    """The training step that sampled it."""

    def line(self) -> str:
        """As TRL's prompt-completion data has it, with where it comes from."""
        fields = {"prompt": self.prompt, "completion": self.completion}
        return json.dumps({**fields, "id": self.id, "step": self.step}, ensure_ascii=False)


def sft_rows(
    run: RunDir, *, success_threshold: float, per_prompt: int, since_step: int = 0
) -> Iterator[SFTRow]:
    """Right, well-formed, whole completions: each text once, at most `per_prompt` a question.

    Later steps first, because the policy was better then. Lines that are torn are left out.
    """
    taken: dict[str, set[str]] = {}
    for path in sorted(run.rollouts.glob("train-*.jsonl"), reverse=True):
        step = int(path.stem.removeprefix("train-"))
        if step < since_step:
            return
        for row in _rows(path):
            if not _accepted(row, success_threshold):
                continue
            texts = taken.setdefault(row["id"], set())
            if len(texts) < per_prompt and row["text"] not in texts:
                texts.add(row["text"])
                yield SFTRow(row["id"], row["prompt"], row["text"], step)


def write_sft(path: Path, rows: Iterator[SFTRow]) -> int:
    """The whole file or none of it; how many rows it has. A file without a row is not written."""
    return write_output(path, (row.line() + "\n" for row in rows))


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with opened(path) as stream:
        for line in byte_lines(stream):
            try:
                row = parse_json(line.decode("utf-8", errors="replace"))
            except UnreadableError:
                continue
            if isinstance(row, dict):
                yield row


def _accepted(row: Mapping[str, Any], success_threshold: float) -> bool:
    """Rows of runs that did not write the question down cannot be used."""
    texts = all(isinstance(row.get(name), str) for name in ("id", "prompt", "text"))
    right = row.get("reason") == CORRECT and not row.get("truncated", True)
    return texts and right and row.get("reward", 0.0) >= success_threshold
