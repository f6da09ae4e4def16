"""Checkpoints of a Trainer: `checkpoints/checkpoint-N/`, complete when `complete.json` stands.

The Trainer writes the folder in its own form; sealing it, finding the newest, clearing old ones
away and pointing `selected` at the best are the run's. Knows files, not what is in them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from engine.contract.run_dir import COMPLETE, RunDir, complete_checkpoints
from engine.run import checkpoint
from engine.run.checkpoint import Checkpoint, Warn

_TRAINER_STATE = "trainer_state.json"
_NAME = re.compile(r"checkpoint-(\d+)")


def folder_of(run: RunDir, step: int) -> Path:
    """Where the Trainer saves a step."""
    return run.checkpoints / f"checkpoint-{step}"


def seal(run: RunDir, step: int, state: dict[str, Any]) -> Checkpoint:
    """Make a step's folder durable and complete."""
    return checkpoint.seal(folder_of(run, step), state, step=step)


def complete(run: RunDir) -> list[tuple[int, Path]]:
    """Every complete checkpoint as (step, folder), oldest first."""
    return list(complete_checkpoints(run))


def load_newest(run: RunDir, warn: Warn) -> Checkpoint | None:
    """The newest checkpoint that is complete and unharmed; what is not is said and passed over."""
    whole = dict(complete(run))
    for step, path in sorted(_folders(run)):
        if step not in whole:
            warn("CHECKPOINT_INCOMPLETE", f"{path.name} has no {COMPLETE}; ignored")
    for step in sorted(whole, reverse=True):
        if not (whole[step] / _TRAINER_STATE).is_file():
            continue  # weights alone, to score: nothing goes on from them
        found = checkpoint.verified(whole[step], warn)
        if found:
            return found
    return None


def discard_incomplete(run: RunDir) -> None:
    """Remove what a killed attempt left half-written: the Trainer would write into it again."""
    for _, path in _folders(run):
        if not (path / COMPLETE).is_file():
            shutil.rmtree(path)


def discard_after(run: RunDir, step: int) -> None:
    """Remove checkpoints of later steps: the run goes back to `step` and computes them anew."""
    for later, path in _folders(run):
        if later > step:
            _remove(path)


def retain(run: RunDir, *, keep: int, always: Collection[int]) -> None:
    """Remove all but the last `keep` checkpoints and those of the steps in `always`."""
    for step, path in complete(run)[:-keep]:
        if step not in always:
            _remove(path)


def select(run: RunDir, step: int) -> None:
    """Point `selected` at a step's checkpoint."""
    checkpoint.select_folder(run, folder_of(run, step))


def _remove(path: Path) -> None:
    """The marker goes first, so that a half-removed checkpoint is an incomplete one."""
    (path / COMPLETE).unlink(missing_ok=True)
    shutil.rmtree(path)


def _folders(run: RunDir) -> list[tuple[int, Path]]:
    found = ((_NAME.fullmatch(path.name), path) for path in run.checkpoints.glob("checkpoint-*"))
    return [(int(match[1]), path) for match, path in found if match]
