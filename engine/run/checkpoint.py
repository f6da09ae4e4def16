"""Checkpoints: `checkpoints/step-NNNNNN/`, complete when `complete.json` stands.

Published by writing into a temporary folder, making every file durable, renaming it, and writing
`complete.json` (hashes of all files) last. Knows files; not what a policy or an optimizer is.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engine.contract.documents import opened, read_file, read_json_object
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.outputs import require_empty
from engine.contract.run_dir import (
    COMPLETE,
    CompleteMarker,
    RunDir,
    complete_checkpoints,
    fsync_directory,
    step_of,
    write_json,
)
from engine.run.stop import sign_of_life

Warn = Callable[[str, str], None]
"""`warn(code, text)`: a checkpoint that was ignored is said, not hidden."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint whose files have the hashes they were written with."""

    step: int
    path: Path
    state: dict[str, Any]


def verified(path: Path, warn: Warn) -> Checkpoint | None:
    """The checkpoint at `path` when each of its files still has its hash; else None, and said."""
    try:
        marker = CompleteMarker.model_validate_json(read_file(path / COMPLETE))
        harmed = [name for name, digest in marker.files.items() if _hash(path / name) != digest]
    except (OSError, ValidationError) as error:
        warn("CHECKPOINT_CORRUPT", f"{path.name} cannot be read: {error}; ignored")
        return None
    if harmed:
        warn("CHECKPOINT_CORRUPT", f"{path.name}: {harmed[0]} has changed since; ignored")
        return None
    return Checkpoint(marker.step, path, marker.state)


def seal(folder: Path, state: dict[str, Any], *, step: int = 0) -> Checkpoint:
    """Complete a folder that somebody else filled: a cache entry, or a trainer's own checkpoint.

    `verified` reads it.
    """
    return _mark(folder, CompleteMarker(step=step, files=make_durable(folder), state=state))


def refused(run: RunDir) -> bool:
    """Whether step 0 was measured against the model in memory and failed (`engine.run.proof`), or
    was made anew and not measured since.

    Weights that were read back equal themselves, so nothing goes on from it.
    """
    try:
        return "failed" in read_json_object(run.proof)
    except OSError:
        return False


def recorded_hashes(path: Path) -> Mapping[str, str]:
    """Relative path → SHA-256 as the marker says; empty when there is no readable marker."""
    try:
        return CompleteMarker.model_validate_json(read_file(path / COMPLETE)).files
    except (OSError, ValidationError):
        return {}


def weights_of(path: Path) -> Mapping[str, str]:
    """The recorded hashes of the weights alone: what a checkpoint says it belongs to."""
    found = recorded_hashes(path)
    return {name: digest for name, digest in found.items() if name.endswith(".safetensors")}


@dataclass(frozen=True)
class CheckpointStore:
    """The checkpoints of one run; `warn(code, text)` hears of each that is passed over."""

    run: RunDir
    warn: Warn
    pattern: str = "step-{:06d}"
    """Name of a step's folder."""
    needs: str | None = None
    """A file without which training does not go on from a checkpoint: it has weights alone."""

    def folder(self, step: int) -> Path:
        """Where the checkpoint of a step stands, or would."""
        return self.run.checkpoints / self.pattern.format(step)

    def complete(self) -> dict[int, Path]:
        """Step → folder of every complete checkpoint, oldest first."""
        return dict(complete_checkpoints(self.run))

    def verified(self, step: int) -> Checkpoint | None:
        """The step's checkpoint when it stands unharmed."""
        folder = self.folder(step)
        return verified(folder, self.warn) if folder.is_dir() else None

    def newest(self) -> Checkpoint | None:
        """The newest complete and unharmed one to go on from; None when there is none."""
        complete = self.complete()
        for step, folder in self._folders():
            if step not in complete:
                self.warn("CHECKPOINT_INCOMPLETE", f"{folder.name} has no {COMPLETE}; ignored")
        for step in sorted(complete, reverse=True):
            if self.needs is not None and not (complete[step] / self.needs).is_file():
                continue
            if step == 0 and refused(self.run):
                continue
            found = verified(complete[step], self.warn)
            if found:
                return found
        return None

    def best_whole(self, picked: int, scores: Mapping[int, float]) -> int:
        """The picked step, or where its checkpoint is harmed or gone the best of those that stand
        whole, the earliest of equals; 0 where none does.
        """
        others = sorted(scores.keys() - {picked}, key=lambda step: (-scores[step], step))
        return next((step for step in (picked, *others) if self.verified(step)), 0)

    def publish(
        self, step: int, write: Callable[[Path], None], state: dict[str, Any]
    ) -> Checkpoint:
        """Let `write(folder)` fill a new checkpoint and make it complete.

        An older one of the same step, whole or not, is replaced: the caller just computed it anew.
        """
        target = self.folder(step)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        for leftover in self.run.checkpoints.glob(f".{target.name}.*.tmp"):
            shutil.rmtree(leftover)
        temporary.mkdir(parents=True)
        write(temporary)
        files = make_durable(temporary)
        if target.exists():
            _remove(target)
        temporary.rename(target)
        fsync_directory(self.run.checkpoints)
        return _mark(target, CompleteMarker(step=step, files=files, state=state))

    def make_anew(self, step: int, make: Callable[[], object]) -> None:
        """Let `make` write a lost checkpoint again, from what is deterministic; said, and whether
        its weights are proven to be the same. Of step 0 a proof is due again.
        """
        if step == 0:
            write_json(self.run.proof, {"failed": "step 0 was made anew and not measured since"})
        before = weights_of(self.folder(step))
        make()
        same = before == weights_of(self.folder(step))
        told = "with the same weights" if same else "but not proven to have the same weights"
        text = f"checkpoint {step} was damaged, gone or unproven and is made anew, {told}"
        self.warn("STEP_ZERO_REBUILT", text)

    def seal(self, step: int, state: dict[str, Any]) -> Checkpoint:
        """Make the folder that a trainer filled for a step durable and complete."""
        return seal(self.folder(step), state, step=step)

    def discard_incomplete(self) -> None:
        """Remove what a killed attempt left half-written: a trainer would write into it again."""
        for _, folder in self._folders():
            if not (folder / COMPLETE).is_file():
                shutil.rmtree(folder)

    def discard_after(self, step: int) -> None:
        """Remove the checkpoints of later steps, the newest first: a killed call leaves no gap."""
        for later, folder in reversed(self._folders()):
            if later > step:
                _remove(folder)

    def retain(self, *, keep: int, always: Collection[int]) -> Sequence[int]:
        """Remove all but the last `keep` checkpoints and those of the steps in `always`; the steps
        of those removed.
        """
        older = list(self.complete().items())[:-keep]
        removed = {step: folder for step, folder in older if step not in always}
        for folder in removed.values():
            _remove(folder)
        return tuple(removed)

    def select(self, step: int) -> None:
        """Point `selected` at a step's checkpoint; a reader sees the old or the new one."""
        link = self.run.selected
        temporary = link.with_name(f".selected.{os.getpid()}")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(self.folder(step).relative_to(self.run.root))
        temporary.replace(link)
        fsync_directory(self.run.root)

    def _folders(self) -> list[tuple[int, Path]]:
        """Step and folder of every checkpoint, whole or not, oldest first."""
        found = ((step_of(path.name), path) for path in self.run.checkpoints.glob("*"))
        return sorted((step, path) for step, path in found if step is not None)


def _mark(folder: Path, marker: CompleteMarker) -> Checkpoint:
    write_json(folder / COMPLETE, marker.model_dump())
    return Checkpoint(marker.step, folder, marker.state)


def _remove(path: Path) -> None:
    """The marker goes first, so that a half-removed checkpoint is an incomplete one."""
    (path / COMPLETE).unlink(missing_ok=True)
    shutil.rmtree(path)


def make_durable(folder: Path) -> dict[str, str]:
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
    sign_of_life()  # a checkpoint has many files, and large ones
    with opened(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- a folder elsewhere, for a person ---


@contextmanager
def folder_of_one_piece(target: Path) -> Iterator[Path]:
    """A folder to fill that becomes `target` when the block ends well: whole or not at all.

    It is filled beside it, as `.NAME.part`; what a killed process left there is taken away.
    Raises ConfigError where `target` holds anything, and while another process writes it.
    """
    require_empty("OUT", target)
    part = target.with_name(f".{target.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    lock = os.open(part, os.O_RDONLY)
    try:
        _lock(lock, target)
        shutil.rmtree(part / "model", ignore_errors=True)
        yield part / "model"
        make_durable(part)
        (part / "model").rename(target)  # in place of an empty folder too
        fsync_directory(target.parent)
    except BaseException:
        shutil.rmtree(part / "model", ignore_errors=True)
        raise
    finally:
        os.close(lock)
        with suppress(OSError):  # of another process, which writes it
            part.rmdir()


def _lock(handle: int, target: Path) -> None:
    """Until the handle is closed, or its process has ended."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        problem = "is being written by another process"
        remedy = "wait for that, or name another folder"
        raise ConfigError([ConfigProblem("OUT", str(target), problem, remedy)]) from None
