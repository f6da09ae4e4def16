"""The run directory: the whole contract between worker and engine.

    runs/<job id>/
      events.jsonl          append-only, written by the engine alone
      attempts/001/         job.json (worker) · engine.log · serving.log · abort (the sentinel)
      awaited.json          written by the worker: which checkpoints are still to be scored
      inputs.json           hashes of the files that the run began with
      rollouts/*.jsonl      every completion
      rollouts/rescored/    what they came to when they were judged again
      checkpoints/step-…    complete.json last
      base/                 the warmed-up model that low-rank checkpoints of stage-2 belong to
      selected              symlink to the checkpoint that held-out picked
      split.json            ids of the training, select and report rows, frozen
      proof.json            what was measured before step 1
      lineage.json  report.json
      serving/              the adapter that a serving lane answers with, while it does
      trace.json            spans, counters and sample fates; opens in Perfetto

It knows paths, file formats and atomic writes; not what trains and not who decides.
"""

from __future__ import annotations

import enum
import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.contract.documents import UnreadableError, opened, read_file, read_json_object
from engine.contract.errors import NightlaneError
from engine.contract.serving import Serving


class ExitCode(enum.IntEnum):
    """What the engine's exit status means to its supervisor; any other value is a crash."""

    DONE = 0
    ABORTED = 75
    """Stopped after writing a checkpoint, on request or for want of a server; it can be resumed."""
    DECLINED = 76
    """The engine refused the work, or gave it up for what it found out itself (no headroom, stale
    weights)."""
    CONFIG = 78


class RunDirError(NightlaneError):
    """A run directory that does not hold what the contract says."""


class AbortReason(enum.StrEnum):
    """Who asked a running attempt to stop. The settlement depends on it."""

    CANCEL = "cancel"
    REQUEUE = "requeue"
    """A person wants the lane for something else first."""
    BUDGET = "budget"
    WINDOW = "window"
    SIGTERM = "sigterm"
    MEMORY = "memory"
    SILENT = "silent"
    """No event came for so long that it must be taken to hang."""
    OPERATOR = "operator"


class Abort(BaseModel):
    """The sentinel. An empty file (an operator's `touch`) is a complete request too."""

    model_config = ConfigDict(extra="ignore")

    reason: AbortReason = AbortReason.OPERATOR
    headroom_gb: float | None = None
    floor_gb: float | None = None
    tripped_at: float | None = Field(default=None, description="Unix seconds.")


class InputFile(BaseModel):
    """One file an attempt reads, named so that the directory can move to another box."""

    path: str
    size: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> InputFile:
        """Describe a file as it is now. Raises OSError when it cannot be read."""
        with opened(path) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return cls(path=str(path), size=path.stat().st_size, sha256=digest)


class JobFile(BaseModel):
    """`attempts/NNN/job.json`: all that the engine is told."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    job_id: int
    kind: str
    config: dict[str, Any]
    """The resolved config: every default written out."""
    seed: int
    attempt: int
    fence: int
    inputs: list[InputFile] = []
    cache_dir: str
    """Where results that only depend on a recipe may be kept between jobs (the warm-up)."""
    serving: Serving | None = None
    """The operator's serving lane, for a kind that serves; None = its defaults."""
    supervisor_pid: int | None = None
    """The engine stops when this process is no longer its parent; None = run without one."""


@dataclass(frozen=True)
class RunDir:
    """Paths inside one run directory."""

    root: Path

    @property
    def events(self) -> Path:
        return self.root / "events.jsonl"

    @property
    def inputs(self) -> Path:
        return self.root / "inputs.json"

    @property
    def awaited(self) -> Path:
        return self.root / "awaited.json"

    @property
    def today(self) -> Path:
        return self.root / "today.json"

    @property
    def rollouts(self) -> Path:
        return self.root / "rollouts"

    @property
    def rescored(self) -> Path:
        return self.rollouts / "rescored"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def base(self) -> Path:
        return self.root / "base"

    @property
    def selected(self) -> Path:
        return self.root / "selected"

    @property
    def split(self) -> Path:
        return self.root / "split.json"

    @property
    def proof(self) -> Path:
        return self.root / "proof.json"

    @property
    def lineage(self) -> Path:
        return self.root / "lineage.json"

    @property
    def trace(self) -> Path:
        return self.root / "trace.json"

    @property
    def report(self) -> Path:
        return self.root / "report.json"

    @property
    def serving(self) -> Path:
        return self.root / "serving"

    def attempt(self, number: int) -> AttemptDir:
        return AttemptDir(self.root / "attempts" / f"{number:03d}")

    def latest_attempt(self) -> int:
        """Number of the newest attempt that has a job.json; 0 when there is none."""
        found = [
            int(entry.name)
            for entry in (self.root / "attempts").glob("[0-9]*")
            if entry.name.isdecimal() and (entry / "job.json").is_file()
        ]
        return max(found, default=0)

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:06d}"


@dataclass(frozen=True)
class AttemptDir:
    """One attempt keeps its own evidence."""

    root: Path

    @property
    def job_file(self) -> Path:
        return self.root / "job.json"

    @property
    def log(self) -> Path:
        return self.root / "engine.log"

    @property
    def serving_log(self) -> Path:
        return self.root / "serving.log"

    @property
    def shadows(self) -> Path:
        """Of folders that are read and must not be written (`engine.run.shadow`)."""
        return self.root / "shadows"

    @property
    def abort(self) -> Path:
        return self.root / "abort"

    @property
    def rendezvous(self) -> Path:
        """Where its learner processes meet."""
        return self.root / "rendezvous"

    def events_of_rank(self, rank: int) -> Path:
        """What another learner process than the first one says: the first writes the run's."""
        return self.root / f"events.rank-{rank}.jsonl"

    def read_job(self) -> JobFile:
        """Raises RunDirError when job.json is missing or not of this version."""
        try:
            return JobFile.model_validate_json(read_file(self.job_file))
        except UnreadableError as error:
            raise RunDirError(f"{self.job_file} {error}; start the job again") from error
        except FileNotFoundError as error:
            raise RunDirError(
                f"{self.job_file} does not exist; start the engine on a directory made by a drain"
            ) from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "(file)"
            raise RunDirError(f"{self.job_file}: {where}: {first['msg']}") from error

    def read_abort(self) -> Abort | None:
        """The stop request, or None. Whatever cannot be parsed still means: stop."""
        try:
            text = read_file(self.abort).decode("utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError:
            return Abort()
        try:
            return Abort.model_validate_json(text)
        except ValidationError:
            named = (reason for reason in AbortReason if self._wordless(reason).exists())
            return Abort(reason=next(named, AbortReason.OPERATOR))

    def request_abort(self, abort: Abort) -> bool:
        """Write the sentinel unless one stands already (the first reason wins).

        On a full disk it is an empty file, which may still have room, with another one beside it
        whose name is the reason. Returns whether this call wrote it.
        """
        temporary = self.abort.with_name(f".abort.{os.getpid()}")
        try:
            temporary.write_text(abort.model_dump_json() + "\n", "utf-8")
            os.link(temporary, self.abort)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT} or self.abort.exists():
                raise
            self._wordless(abort.reason).touch()
            self.abort.touch()
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def _wordless(self, reason: AbortReason) -> Path:
        return self.root / f"abort.{reason}"

    def file_away_abort(self) -> Path | None:
        """Move a stale sentinel aside before an attempt starts; the evidence stays."""
        if not self.abort.exists():
            return None
        number = len(list(self.root.glob("abort.stale-*"))) + 1
        target = self.root / f"abort.stale-{number}"
        self.abort.rename(target)
        for reason in AbortReason:
            self._wordless(reason).unlink(missing_ok=True)
        return target


def write_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data` so that a reader or a crash sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    fsync_directory(path.parent)


def write_json(path: Path, value: Any) -> None:
    """`write_atomic` for a JSON document."""
    write_atomic(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def write_once(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the JSON document at `path` says, made by whoever asks first; of several, by one.

    One that a broken disk has left unreadable is made anew.
    """
    with suppress(OSError):
        return read_json_object(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    write_json(temporary, make())
    try:
        os.link(temporary, path)
    except FileExistsError:
        with suppress(OSError):
            return read_json_object(path)  # somebody was faster
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return read_json_object(path)


def fsync_directory(path: Path) -> None:
    """Make renames and new names inside `path` durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- checkpoints: complete when complete.json stands ---

COMPLETE = "complete.json"
_STEP_NAME = re.compile(r"step-(\d{6,})|checkpoint-(\d+)")
"""Ours, and that of Transformers' Trainer; a kind has the one or the other."""


class CompleteMarker(BaseModel):
    """`complete.json`: written last and fsynced; a checkpoint without it does not exist."""

    step: int
    files: dict[str, str]
    """Relative path → SHA-256, of every other file in the checkpoint."""
    state: dict[str, Any] = {}
    """Small facts about the loop, for people and for `show`."""


def step_of(name: str) -> int | None:
    """The step that a checkpoint's folder is named after; None for any other name.

    >>> step_of("step-000020"), step_of("checkpoint-20"), step_of("runs")
    (20, 20, None)
    """
    match = _STEP_NAME.fullmatch(name)
    return None if match is None else int(match[1] or match[2])


def complete_checkpoints(run: RunDir) -> Sequence[tuple[int, Path]]:
    """Every complete checkpoint of the run as (step, path), oldest first."""
    found = ((step_of(path.name), path) for path in run.checkpoints.glob("*-*"))
    return sorted(
        (step, path) for step, path in found if step is not None and (path / COMPLETE).is_file()
    )
