"""One attempt as a kind's entry sees it: where to write, what to do, when to stop.

Knows the run directory and the process it lives in; not what trains.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from engine.contract.events import EventLog
from engine.contract.kinds import validate
from engine.contract.run_dir import AttemptDir, JobFile, RunDir, RunDirError


@dataclass(frozen=True)
class Attempt:
    """Handed to a kind's entry as its only argument."""

    run: RunDir
    dir: AttemptDir
    job: JobFile
    config: BaseModel
    """The job's config, validated by its kind."""
    events: EventLog

    def orphaned(self) -> bool:
        """Whether the supervisor that started this process is no longer its parent."""
        supervisor = self.job.supervisor_pid
        return supervisor is not None and os.getppid() != supervisor

    def should_abort(self) -> bool:
        """Whether the sentinel stands or nobody supervises any more. Two system calls."""
        return self.dir.abort.exists() or self.orphaned()


def read_newest_job(run: RunDir) -> tuple[AttemptDir, JobFile]:
    """The newest attempt and its job.json. Raises RunDirError when there is none."""
    number = run.latest_attempt()
    if number == 0:
        raise RunDirError(
            f"{run.root} holds no attempts/NNN/job.json; name a run directory made by a drain"
        )
    directory = run.attempt(number)
    return directory, directory.read_job()


def open_attempt(run: RunDir, directory: AttemptDir, job: JobFile, events: EventLog) -> Attempt:
    """Raises ConfigError when the job's kind does not accept its config on this machine."""
    Path(job.cache_dir).mkdir(parents=True, exist_ok=True)
    return Attempt(run, directory, job, validate(job.kind, job.config), events)
