"""The rollout journal: every completion of a step as JSON lines, and back again.

`rollouts/train-NNNNNN.jsonl` is written whole (aside, then renamed) before anything is trained on
it. A resumed run takes a step's completions from there instead of sampling and judging them anew;
a file that is torn, or of other weights, is passed over. What was drawn ahead for a step and is not
judged yet stands in `rollouts/ahead-NNNNNN.jsonl`. Torch-free; knows no loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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

    def _ahead(self, step: int) -> Path:
        return self.folder / f"ahead-{step:06d}.jsonl"

    def recall(
        self,
        step: int,
        tasks: Sequence[Question],
        k: int,
        version: int,
        *,
        oldest: int | None = None,
    ) -> Recalled | None:
        """k judged completions of each task by weights `version`, or by older ones down to
        `oldest`; None unless all are there.
        """
        try:
            rows = _wanted(self.path(step), tasks, k, _versions(version, oldest))
            judged = None if rows is None else [[_judged(row) for row in group] for group in rows]
        except (KeyError, TypeError, ValueError):
            return None
        if judged is None:
            return None
        return Recalled(
            [[rollout for rollout, _ in group] for group in judged],
            [[verdict for _, verdict in group] for group in judged],
        )

    def recall_ahead(
        self, step: int, tasks: Sequence[Question], k: int, version: int, oldest: int
    ) -> Groups | None:
        """The same of what was drawn ahead and not judged."""
        try:
            rows = _wanted(self._ahead(step), tasks, k, _versions(version, oldest))
            return None if rows is None else [[_rollout(row) for row in group] for group in rows]
        except (KeyError, TypeError, ValueError):
            return None

    def write_ahead(self, step: int, groups: Groups) -> None:
        """What was drawn while an earlier step trained."""
        write_rows(self._ahead(step), [_drawn(one) for group in groups for one in group])

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
        self._ahead(step).unlink(missing_ok=True)

    def forget_after(self, step: int) -> None:
        """Remove what later steps sampled: their weights are given up."""
        for path in self._after(step):
            path.unlink()

    def set_aside_after(self, step: int) -> None:
        """What later steps sampled is believed no more: kept as `refused-…`, and never recalled."""
        for path in self._after(step):
            path.replace(path.with_name(f"refused-{path.name}"))

    def _after(self, step: int) -> Iterator[Path]:
        for path in (*self.folder.glob("train-*.jsonl"), *self.folder.glob("ahead-*.jsonl")):
            if path.stem.partition("-")[2] > f"{step:06d}":
                yield path


_LOGGED = ("parts", "extra", "logged")
"""What of a verdict only some rewards have."""


def record(rollout: Rollout, verdict: Verdict) -> dict[str, Any]:
    """One completion as a JSON object."""
    return {
        **_drawn(rollout),
        "answer": verdict.answer,
        "reward": verdict.reward,
        "reason": verdict.reason,
        "verified": verdict.verified,
        **{name: value for name in _LOGGED if (value := getattr(verdict, name))},
    }


def _drawn(rollout: Rollout) -> dict[str, Any]:
    """One completion before it is judged."""
    return {
        "id": rollout.question_id,
        "sample": rollout.sample,
        "version": rollout.version,
        "text": rollout.text,
        "truncated": rollout.truncated,
        "prompt_ids": rollout.prompt_ids,
        "completion_ids": rollout.completion_ids,
        # Written out in full: what is recalled must be what was sampled, to the bit.
        "logprobs": rollout.logprobs,
        "draw_shift": rollout.draw_shift,
        "begun": rollout.begun,
        **({"server": rollout.server} if rollout.server else {}),
    }


def _versions(version: int, oldest: int | None) -> range:
    return range(version if oldest is None else oldest, version + 1)


def _wanted(
    path: Path, tasks: Sequence[Question], k: int, versions: range
) -> list[list[dict[str, Any]]] | None:
    """The k rows of each task; None unless all are there. Raises KeyError or TypeError for rows
    that are none of a journal.
    """
    rows = read_rows(path)
    if rows is None:
        return None
    found = {(r["id"], r["sample"]): r for r in rows if r.get("version") in versions}
    wanted = [[(task.id, task.again * k + sample) for sample in range(k)] for task in tasks]
    if any(name not in found for names in wanted for name in names):
        return None
    return [[found[name] for name in names] for names in wanted]


def _judged(row: Mapping[str, Any]) -> tuple[Rollout, Verdict]:
    """The inverse of `record`."""
    verified = row.get("verified")
    logged = {name: row[name] for name in _LOGGED if name in row}
    verdict = Verdict(row["reward"], row["answer"], Reason(row["reason"]), verified, **logged)
    return _rollout(row), verdict


def _rollout(row: Mapping[str, Any]) -> Rollout:
    return Rollout(
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
        server=row.get("server", ""),
    )


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
