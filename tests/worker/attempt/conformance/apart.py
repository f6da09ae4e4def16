"""A runner whose engines live as on another machine: on a copy of the run directory, in a session
of their own that outlives the supervisor. All that it has of one is the copy, an identity that can
be killed, and an exit status in a file.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from engine.contract.run_dir import COMPLETE, Abort, RunDir
from tests.worker.attempt.conformance import keeper
from worker.attempt.runner.base import EngineStartError, Exit
from worker.lane.process_id import ProcessIdentity
from worker.lane.strays import MARK, end_attempt, mark

PATIENCE_S = 10.0


class ApartRunner:
    def __init__(self, there: Path) -> None:
        self._there = there

    def copy_of(self, run: RunDir) -> RunDir:
        return RunDir(self._there / run.root.name)

    def start(self, run: RunDir, attempt: int) -> ApartEngine:
        copy = self.copy_of(run)
        shutil.rmtree(copy.root, ignore_errors=True)
        shutil.copytree(run.root, copy.root, symlinks=True)
        told = subprocess.run(
            [sys.executable, "-m", keeper.__name__, str(copy.root), str(attempt)],
            env=os.environ | {MARK: mark(copy.attempt(attempt).log)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        if not told.stdout:
            raise EngineStartError(f"the engine of {copy.root} did not start; the job is queued")
        return ApartEngine(self, run, attempt, told.stdout.strip())

    def kill(self, run: RunDir, attempt: int, engine: str | None) -> None:
        log = self.copy_of(run).attempt(attempt).log
        identity = ProcessIdentity.parse(engine) if engine else None
        end_attempt(identity, log, patience_s=PATIENCE_S)

    def fetch(self, run: RunDir, attempt: int) -> None:
        copy = self.copy_of(run)
        if not copy.root.exists():
            return  # it never got there
        _append(copy.events, run.events)
        directory = run.attempt(attempt)
        ours = {run.events, directory.job_file, directory.abort}
        there = [name for name in _names(copy) if run.root / name not in ours]
        here = [name for name in _names(run) if run.root / name not in ours]
        for name in reversed(here):
            if name not in there:
                _remove(run.root / name)
        for name in there:
            _copy(copy.root / name, run.root / name)
        asked = copy.attempt(attempt).read_abort()
        if asked is not None and not directory.abort.exists():
            directory.request_abort(asked)


class ApartEngine:
    def __init__(self, runner: ApartRunner, run: RunDir, attempt: int, identity: str) -> None:
        self.identity = identity
        self._runner = runner
        self._run = run
        self._number = attempt
        self._there = runner.copy_of(run).attempt(attempt)

    def follow(self, phase: str | None, step: int | None) -> Exit | None:  # noqa: ARG002 - the protocol's
        if ProcessIdentity.parse(self.identity).alive():
            return None
        self.kill()
        try:
            return Exit(int(keeper.status_of(self._there).read_text()))
        except FileNotFoundError:
            return Exit(-signal.SIGKILL)

    def ask_to_stop(self, request: Abort) -> None:
        self._there.request_abort(request)

    def kill(self) -> None:
        self._runner.kill(self._run, self._number, self.identity)


def _names(run: RunDir) -> list[Path]:
    """Everything under its final name; what says that a folder is complete comes last."""
    files = [
        Path(folder, name).relative_to(run.root)
        for folder, folders, names in os.walk(run.root)
        for name in (*names, *(one for one in folders if Path(folder, one).is_symlink()))
    ]
    whole = [file for file in files if not any(part.startswith(".") for part in file.parts)]
    return sorted(whole, key=lambda file: (file.name == COMPLETE, file))


def _append(source: Path, target: Path) -> None:
    """What is new of a file that only grows, up to the end of a line."""
    if source.exists():
        with source.open("rb") as lines, target.open("ab") as file:
            lines.seek(file.tell())
            new = lines.read()
            file.write(new[: new.rfind(b"\n") + 1])


def _copy(source: Path, target: Path) -> None:
    """A file or a link, at once under its name; one that is gone meanwhile is left out."""
    part = target.with_name(f".{target.name}.part")
    with contextlib.suppress(FileNotFoundError):
        if _stamp(source) in {None, _stamp(target)}:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        shutil.copy2(source, part, follow_symlinks=False)
        part.replace(target)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        known = path.lstat()
    except FileNotFoundError:
        return None
    return known.st_size, known.st_mtime_ns


def _remove(path: Path) -> None:
    """With the folders that are empty without it."""
    path.unlink()
    with contextlib.suppress(OSError):
        os.removedirs(path.parent)
