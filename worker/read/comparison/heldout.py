"""A run's held-out rows, found in its rollout files: what was scored, at which step, row by row.

Knows one run at a time and no difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from worker.read.jobs import JobView
from worker.read.samples.files import Split, rollout_files
from worker.read.samples.index import BYTES_A_LOOK, SHELF, FileIndex, Shelf
from worker.read.samples.rows import Outcome

Measure = Literal["success", "f1"]
UNJUDGED = "unjudged"
"""The reason of a row that is in no score, on neither side of a pair."""


class Scored(NamedTuple):
    """One held-out row."""

    place: int
    """In its file."""
    outcome: Outcome


class Heldout(NamedTuple):
    """One gate of a run, or one score on a bench."""

    split: str
    step: int
    measure: Measure
    rows: Mapping[str, Scored]
    """By the question's id."""
    file: FileIndex
    read_share: float
    """Less than one: the file is very large, and only so much of it was read yet."""


def gates_of(job: JobView) -> dict[Split, dict[int, Path]]:
    """The held-out files of a run, by split and step."""
    files = rollout_files(job.run_dir)
    return {split: files[split] for split in (Split.REPORT, Split.SELECT) if split in files}


def picked_step(job: JobView, steps: Mapping[int, Path]) -> int:
    """The step whose checkpoint held-out picked, else the newest one scored."""
    selected = job.result.get("selected_step")
    return selected if isinstance(selected, int) and selected in steps else max(steps)


def read_gate(path: Path, split: str, step: int, shelf: Shelf = SHELF) -> Heldout | None:
    """The rows of one gate; None when they carry no success to compare."""
    index = shelf.index(path, split, step)
    index.look(4 * BYTES_A_LOOK)
    rows: dict[str, Scored] = {}
    for place, fact in enumerate(index.facts):
        if fact.outcome.reason == UNJUDGED:
            continue
        if fact.outcome.success is None:
            return None
        rows.setdefault(fact.outcome.id, Scored(place, fact.outcome))
    if not rows:
        return None
    measure: Measure = "success" if index.facts[0].outcome.hits is None else "f1"
    share = index.read_to / index.size if index.size else 1.0
    return Heldout(split, step, measure, rows, index, share)


def same_question(one: Outcome, other: Outcome) -> bool:
    """Whether two rows of one id asked the same; what neither file tells is taken as the same."""
    if one.asked is not None and other.asked is not None:
        return one.asked == other.asked
    if one.asked_ids is not None and other.asked_ids is not None:
        return one.asked_ids == other.asked_ids
    return one.hits is None and other.hits is None
