"""Checkpoints: `checkpoints/step-NNNNNN/`, complete when `complete.json` stands.

Published by writing into a temporary folder, making every file durable, renaming it, and writing
`complete.json` (hashes of all files) last. Knows files; not what a policy or an optimizer is.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engine.contract.run_dir import (
    COMPLETE,
    CompleteMarker,
    RunDir,
    complete_checkpoints,
    fsync_directory,
    write_json,
)

Warn = Callable[[str, str], None]
"""`warn(code, text)`: a checkpoint that was ignored is said, not hidden."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint whose files have the hashes they were written with."""

    step: int
    path: Path
    state: dict[str, Any]


def publish(
    run: RunDir, step: int, write: Callable[[Path], None], state: dict[str, Any]
) -> Checkpoint:
    """Let `write(folder)` fill a new checkpoint and make it complete.

    An older one of the same step, whole or not, is replaced: the caller just computed it anew.
    """
    target = run.checkpoint(step)
    temporary = run.checkpoints / f".{target.name}.{os.getpid()}.tmp"
    for leftover in run.checkpoints.glob(f".{target.name}.*.tmp"):
        shutil.rmtree(leftover)
    temporary.mkdir(parents=True)
    write(temporary)
    files = _make_durable(temporary)
    if target.exists():
        _remove(target)
    temporary.rename(target)
    fsync_directory(run.checkpoints)
    return _mark(target, CompleteMarker(step=step, files=files, state=state))


def seal(folder: Path, state: dict[str, Any], *, step: int = 0) -> Checkpoint:
    """Complete a folder that somebody else filled: a cache entry, or a trainer's own checkpoint.

    `verified` reads it.
    """
    return _mark(folder, CompleteMarker(step=step, files=_make_durable(folder), state=state))


def load_newest(run: RunDir, warn: Warn) -> Checkpoint | None:
    """The newest checkpoint that is complete and unharmed; None when there is none."""
    complete = dict(complete_checkpoints(run))
    for entry in sorted(run.checkpoints.glob("step-*")):
        if entry not in complete.values():
            warn("CHECKPOINT_INCOMPLETE", f"{entry.name} has no {COMPLETE}; ignored")
    for step in sorted(complete, reverse=True):
        found = verified(complete[step], warn)
        if found:
            return found
    return None


def verified(path: Path, warn: Warn) -> Checkpoint | None:
    """The checkpoint at `path` when each of its files still has its hash; else None."""
    try:
        marker = CompleteMarker.model_validate_json((path / COMPLETE).read_bytes())
        harmed = [name for name, digest in marker.files.items() if _hash(path / name) != digest]
    except (OSError, ValidationError) as error:
        warn("CHECKPOINT_CORRUPT", f"{path.name} cannot be read: {error}; ignored")
        return None
    if harmed:
        warn("CHECKPOINT_CORRUPT", f"{path.name}: {harmed[0]} has changed since; ignored")
        return None
    return Checkpoint(marker.step, path, marker.state)


def whole_pick(
    picked: int, scores: Mapping[int, float], folder_of: Callable[[int], Path], warn: Warn
) -> int:
    """The picked step, or where its checkpoint is harmed or gone the best of those that stand
    whole, the earliest of equals; 0 where none does.
    """
    others = sorted(scores.keys() - {picked}, key=lambda step: (-scores[step], step))
    for step in (picked, *others):
        if folder_of(step).is_dir() and verified(folder_of(step), warn) is not None:
            return step
    return 0


def stand_in(picked: int, found: int) -> dict[str, Any]:
    """The alert where a report is on another checkpoint than the one that held-out picked."""
    text = (
        f"the checkpoint of step {picked}, which held-out picked, is damaged or gone and was not "
        f"scored; step {found}, the best of those that are whole, stands in for it"
    )
    return {"code": "CHECKPOINT_CORRUPT", "step": picked, "text": text}


def recorded_hashes(path: Path) -> Mapping[str, str]:
    """Relative path → SHA-256 as the marker says; empty when there is no readable marker."""
    try:
        return CompleteMarker.model_validate_json((path / COMPLETE).read_bytes()).files
    except (OSError, ValidationError):
        return {}


def forget_after(run: RunDir, step: int) -> None:
    """Remove the checkpoints of later steps, the newest first: a killed call leaves no gap."""
    for later, path in reversed(complete_checkpoints(run)):
        if later > step:
            _remove(path)


def retain(run: RunDir, *, keep: int, always: Collection[int]) -> None:
    """Remove all but the last `keep` checkpoints and those of the steps in `always`."""
    complete = complete_checkpoints(run)
    for step, path in complete[:-keep]:
        if step not in always:
            _remove(path)


def select(run: RunDir, step: int) -> None:
    """Point the `selected` link at a step's checkpoint; a reader sees the old or the new one."""
    select_folder(run, run.checkpoint(step))


def select_folder(run: RunDir, folder: Path) -> None:
    """Point the `selected` link at a checkpoint by its folder."""
    temporary = run.selected.with_name(f".selected.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(folder.relative_to(run.root))
    temporary.replace(run.selected)
    fsync_directory(run.root)


def _mark(folder: Path, marker: CompleteMarker) -> Checkpoint:
    write_json(folder / COMPLETE, marker.model_dump())
    return Checkpoint(marker.step, folder, marker.state)


def _remove(path: Path) -> None:
    """The marker goes first, so that a half-removed checkpoint is an incomplete one."""
    (path / COMPLETE).unlink(missing_ok=True)
    shutil.rmtree(path)


def _make_durable(folder: Path) -> dict[str, str]:
    """fsync every file and folder below; relative path → SHA-256."""
    hashes: dict[str, str] = {}
    for entry in _walk(folder):
        if entry.is_dir():
            fsync_directory(entry)
            continue
        with entry.open("rb") as stream:
            os.fsync(stream.fileno())
        hashes[str(entry.relative_to(folder))] = _hash(entry)
    fsync_directory(folder)
    return hashes


def _walk(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.rglob("*"))


def _hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
