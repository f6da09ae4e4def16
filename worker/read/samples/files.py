"""Which rollout files a run has. Knows names, not what stands in them."""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Mapping
from pathlib import Path

from engine.contract.run_dir import RunDir

SPLIT_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}"
"""What a split or a bench may be called."""
_NAME = re.compile(rf"(?:(train)|heldout-({SPLIT_NAME}))-(\d{{6,12}})\.jsonl", re.ASCII)
_PICTURE = re.compile(r"[0-9a-f]{20}\.jpg", re.ASCII)


class Split(enum.StrEnum):
    """Which prompts a completion answers. Rows of a bench go by the bench's own name, and by `own`
    the run's held-out rows beside one that decides.
    """

    POOL = "pool"
    """Training prompts."""
    SELECT = "select"
    """Held-out rows that pick the checkpoint."""
    REPORT = "report"
    """Held-out rows that are scored once, at the end."""


def rollout_files(run_dir: Path) -> dict[str, dict[int, Path]]:
    """Every rollout file by split and step, steps rising: the run's own splits, then benches by
    name; a split without one is absent.
    """
    try:
        with os.scandir(RunDir(run_dir).rollouts) as entries:
            found = [
                (match[2] or str(Split.POOL), int(match[3]), Path(entry.path))
                for entry in entries
                if (match := _NAME.fullmatch(entry.name))
            ]
    except OSError:
        return {}
    files: dict[str, dict[int, Path]] = {}
    for split, step, path in sorted(found, key=lambda one: one[1]):
        files.setdefault(split, {})[step] = path
    own = [str(split) for split in Split]
    return {
        split: files[split] for split in [*own, *sorted(set(files) - set(own))] if split in files
    }


def nearest(files: Mapping[int, Path], step: int | None) -> int | None:
    """The newest step without a wish, else the last one at or before it, else the first."""
    if not files:
        return None
    steps = list(files)
    if step is None:
        return steps[-1]
    return max((one for one in steps if one <= step), default=steps[0])


def picture_file(run_dir: Path, name: str) -> Path | None:
    """A picture kept beside the rollouts; None for any name but one that the engine gave."""
    if not _PICTURE.fullmatch(name):
        return None
    path = (RunDir(run_dir).rollouts / "pictures" / name).resolve()
    inside = path.is_relative_to(run_dir.resolve())
    return path if inside and path.is_file() else None
