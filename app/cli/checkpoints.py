"""A checkpoint as the command line names it: a job's number, perhaps with a step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from engine.contract.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from worker.db.connection import Database
    from worker.read.jobs import JobView

_NAMED = re.compile(r"(\d{1,18})(?:@(\d{1,10}))?", re.ASCII)


def checkpoint_named(database: Database, field: str, given: str) -> tuple[JobView, Path]:
    """`7`: what job 7 published; `7@20`: its whole checkpoint of step 20.

    Raises ConfigError, and JobNotFoundError for a job that there is not.
    """
    from engine.contract.run_dir import RunDir, complete_checkpoints  # noqa: PLC0415
    from worker.read import jobs  # noqa: PLC0415 - keeps --help light

    match = _NAMED.fullmatch(given)
    if match is None:
        remedy = "write 7 for what job 7 published, or 7@20 for its step 20"
        raise ConfigError([ConfigProblem(field, given, "names no job", remedy)])
    job = jobs.get_job(database, int(match[1]))
    run = RunDir(Path(job.run_dir))
    if match[2] is None:
        if run.selected.is_dir():
            return job, run.selected.resolve()
        problem = f"is a job without a checkpoint (it is {job.state})"
        raise ConfigError([ConfigProblem(field, given, problem, "name another job")])
    there = dict(complete_checkpoints(run))
    if int(match[2]) in there:
        return job, there[int(match[2])]
    steps = ", ".join(map(str, there))
    problem = f"is a checkpoint that job {job.id} does not have"
    remedy = f"it has steps {steps}" if there else "name another job: this one has none"
    raise ConfigError([ConfigProblem(field, given, problem, remedy)])
