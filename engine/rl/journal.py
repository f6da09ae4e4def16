"""The rollout journal: every completion of a step as JSON lines, and back again.

`rollouts/train-NNNNNN.jsonl` is written whole (aside, then renamed) before anything is trained on
it. A resumed run takes a step's completions from there instead of sampling and judging them anew;
a file that is torn, or of other weights, is passed over. Torch-free; knows no loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.contract.documents import MAX_ROWS_BYTES, parse_json, read_text
from engine.contract.jsonl import write_rows
from engine.data.rows import Question
from engine.rewards.adapter import Reason, Verdict
from engine.rl.buffer import JudgedGroup
from engine.sampling.base import Groups, Rollout


@dataclass(frozen=True)
class Recalled:
    """What the journal holds of some tasks, in their order."""

    groups: Groups
    verdicts: Sequence[Sequence[Verdict]]


@dataclass(frozen=True)
class Journal:
    """The journal of one run directory's `rollouts/`."""

    folder: Path

    def path(self, step: int) -> Path:
        """Where a training step's completions stand."""
        return self.folder / f"train-{step:06d}.jsonl"

    def recall(self, step: int, tasks: Sequence[Question], k: int, version: int) -> Recalled | None:
        """k judged completions of each task by weights `version`; None unless all are there."""
        rows = read_rows(self.path(step))
        if rows is None:
            return None
        try:
            found = {(r["id"], r["sample"]): r for r in rows if r.get("version") == version}
            wanted = [
                [found.get((task.id, task.again * k + sample)) for sample in range(k)]
                for task in tasks
            ]
            judged = [[_judged(row) for row in group if row is not None] for group in wanted]
        except (KeyError, TypeError, ValueError):
            return None
        if any(len(group) < k for group in judged):
            return None
        return Recalled(
            [[rollout for rollout, _ in group] for group in judged],
            [[verdict for _, verdict in group] for group in judged],
        )

    def judged(self, step: int) -> list[tuple[str, Rollout, Verdict]]:
        """Every completion of a step with its prompt; none where the file is lost or torn."""
        try:
            return [(row["prompt"], *_judged(row)) for row in read_rows(self.path(step)) or ()]
        except (KeyError, TypeError, ValueError):
            return []

    def write(self, step: int, groups: Sequence[JudgedGroup]) -> None:
        """All that a step sampled, before anything is trained on it."""
        rows = [
            record(rollout, verdict) | {"prompt": group.task.prompt, "advantage": advantage}
            for group in groups
            for rollout, verdict, advantage in group.rows()
        ]
        write_rows(self.path(step), rows)

    def forget_after(self, step: int) -> None:
        """Remove what later steps sampled: their weights are given up."""
        for path in self.folder.glob("train-*.jsonl"):
            if path.stem.removeprefix("train-") > f"{step:06d}":
                path.unlink()


_LOGGED = ("parts", "extra", "logged")
"""What of a verdict only some rewards have."""


def record(rollout: Rollout, verdict: Verdict) -> dict[str, Any]:
    """One completion as a JSON object."""
    return {
        "id": rollout.question_id,
        "sample": rollout.sample,
        "version": rollout.version,
        "text": rollout.text,
        "answer": verdict.answer,
        "reward": verdict.reward,
        "reason": verdict.reason,
        "verified": verdict.verified,
        "truncated": rollout.truncated,
        "prompt_ids": rollout.prompt_ids,
        "completion_ids": rollout.completion_ids,
        # Written out in full: what is recalled must be what was sampled, to the bit.
        "logprobs": rollout.logprobs,
        "draw_shift": rollout.draw_shift,
        "begun": rollout.begun,
        **{name: value for name in _LOGGED if (value := getattr(verdict, name))},
    }


def _judged(row: Mapping[str, Any]) -> tuple[Rollout, Verdict]:
    """The inverse of `record`."""
    rollout = Rollout(
        question_id=row["id"],
        sample=row["sample"],
        prompt_ids=tuple(row["prompt_ids"]),
        completion_ids=tuple(row["completion_ids"]),
        logprobs=tuple(row["logprobs"]),
        text=row["text"],
        truncated=row["truncated"],
        version=row["version"],
        draw_shift=row["draw_shift"],
        begun=row.get("begun", ""),  # rows of older versions say nothing of it
    )
    verified = row.get("verified")
    logged = {name: row[name] for name in _LOGGED if name in row}
    return rollout, Verdict(row["reward"], row["answer"], Reason(row["reason"]), verified, **logged)


def read_rows(path: Path) -> list[dict[str, Any]] | None:
    """The rows of a JSON Lines file; None when it is missing or any line of it is torn."""
    try:
        text = read_text(path, MAX_ROWS_BYTES)
        # Not by `splitlines`: a completion may hold a line separator of Unicode, unescaped.
        rows = [parse_json(line) for line in text.removesuffix("\n").split("\n")]
    except OSError:
        return None
    whole = text.endswith("\n") and all(isinstance(row, dict) for row in rows)
    return rows if whole else None
