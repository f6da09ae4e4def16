"""Which checkpoints stay while a run goes on, by what the disk still holds.

Those that a gate scored stay until the report, so that another bench can be asked about any of
them, and those that wait to be scored until they are; where the disk would not hold them all, the
best and the last do. Removes nothing itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

FREE_BYTES = 5_000_000_000
"""What stays free for everything else that writes to that disk."""


def gated_fit(newest: Path, coming: int) -> bool:
    """Whether the disk holds all gated checkpoints of the run.

    `newest`: a whole checkpoint, which tells how large one is; `coming`: how many gates are to
    come. One more is counted, for the one that is being written.
    """
    each = sum(file.stat().st_size for file in newest.rglob("*") if file.is_file())
    return shutil.disk_usage(newest).free >= each * (coming + 1) + FREE_BYTES


def gap(removed: Collection[int]) -> str:
    """Says which of the scored checkpoints are gone."""
    steps = ", ".join(map(str, sorted(removed)))
    return (
        f"checkpoints of gates at steps {steps} were removed: the disk would not have held those "
        "of all gates; the best and the last stay. To score more of them, make room (cockpit "
        "prune) or raise heldout_every"
    )


def unscored_gap(removed: Collection[int]) -> str:
    """Says which checkpoints are gone before a bench was asked about them."""
    steps = ", ".join(map(str, sorted(removed)))
    return (
        f"checkpoints of steps {steps} were removed before they were scored: the disk would not "
        "have held one more. To score more of them, make room (cockpit prune) or raise "
        "evaluate.every"
    )
