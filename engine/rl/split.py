"""The split: which rows train, which pick the checkpoint, which are scored once at the end.

Carved before anything trains, stored with its ids and hash, and never carved again for a run.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.contract.errors import RLLoopError
from engine.contract.run_dir import write_json
from engine.data import Question


@dataclass(frozen=True)
class Split:
    """Three disjoint lists of rows, in the order of the seeded shuffle."""

    train: Sequence[Question]
    select: Sequence[Question]
    """Held-out rows that every gate looks at."""
    report: Sequence[Question]
    """Held-out rows that nothing looks at before the end."""

    @property
    def hash(self) -> str:
        """SHA-256 over every row's content and its place."""
        parts = [
            [[q.id, q.prompt, q.answer] for q in rows]
            for rows in (self.train, self.select, self.report)
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def carve(
    questions: Sequence[Question], *, heldout_frac: float, select_frac: float, seed: int
) -> Split:
    """Seeded shuffle; held-out = max(1, round(n·frac)) rows, parted into select and report.

    `select` gets at least one row; `report` gets the rest, which may be none. Raises RLLoopError
    when no row is left to train on.
    """
    shuffled = list(questions)
    random.Random(seed).shuffle(shuffled)
    n_heldout = max(1, round(len(shuffled) * heldout_frac))
    heldout, train = shuffled[:n_heldout], shuffled[n_heldout:]
    if not train:
        problem = f"holds out all {len(shuffled)} rows and leaves none to train on"
        raise RLLoopError.of("heldout_frac", heldout_frac, problem, "use a smaller share")
    n_select = max(1, round(n_heldout * select_frac))
    return Split(train=train, select=heldout[:n_select], report=heldout[n_select:])


def freeze(split: Split, path: Path) -> None:
    """Store the split once; a resumed run proves that its rows are still the same.

    Raises RLLoopError when they are not.
    """
    document = {
        "hash": split.hash,
        "train": [q.id for q in split.train],
        "select": [q.id for q in split.select],
        "report": [q.id for q in split.report],
    }
    if not path.exists():
        write_json(path, document)
        return
    if json.loads(path.read_bytes()) != document:
        raise RLLoopError.of(
            "data.source",
            str(path),
            "the rows are no longer those that this run was split with",
            "restore the data file, or enqueue a new run",
        )
