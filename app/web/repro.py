"""What is needed to run a job again: code, versions, data, seeds, commands; and what is not known.

Read from the run directory; a file that is missing or of another version says nothing.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.contract.run_dir import JobFile, RunDir, RunDirError
from worker.attempt.provenance import read_provenance
from worker.read.jobs import JobView


@dataclass(frozen=True)
class Repro:
    """Facts as (name, value); `unknown` are the names of those that nobody wrote down."""

    facts: Sequence[tuple[str, str]]
    packages: Mapping[str, str]
    inputs: Sequence[tuple[str, str, int]]
    """(path, SHA-256, bytes) of each input file at the start of the newest attempt."""
    unknown: Sequence[str]
    again: str | None
    """Queues the same config anew; None while the job is not over."""
    without: str | None
    """Runs the same attempt without the cockpit, in a directory of its own."""


def repro_of(job: JobView) -> Repro:
    """Read the newest attempt's files."""
    run = RunDir(job.run_dir)
    number = run.latest_attempt()
    attempt = run.attempt(number)
    noted = read_provenance(attempt)
    job_file = _job_file(run, number)
    facts = {
        "commit": _commit(noted),
        "pinned versions (constraints.txt), SHA-256": _text(noted.get("constraints_sha256")),
        "Python": _text(noted.get("python")),
        "machine": _text(noted.get("machine")),
        "seed": None if job_file is None else str(job_file.seed),
        "base model": _text(job.config.get("base")),
        "attempts": str(job.attempt) if job.attempt else None,
    }
    source = shlex.quote(str(attempt.job_file))
    return Repro(
        facts=[(name, value) for name, value in facts.items() if value is not None],
        packages=noted.get("packages") or {},
        inputs=[(i.path, i.sha256, i.size) for i in job_file.inputs] if job_file else [],
        unknown=[
            *(name for name, value in facts.items() if value is None),
            *([] if noted.get("packages") else ["package versions"]),
        ],
        again=f"cockpit retry {job.id} --fresh" if job.state.final else None,
        without=None
        if job_file is None
        else f"mkdir -p again/attempts/001 && cp {source} again/attempts/001/job.json && "
        f"{shlex.quote(sys.executable)} -m engine run again --by-hand",
    )


def _job_file(run: RunDir, number: int) -> JobFile | None:
    try:
        return run.attempt(number).read_job() if number else None
    except (RunDirError, OSError):
        return None


def _commit(noted: Mapping[str, Any]) -> str | None:
    commit, changed = _text(noted.get("commit")), noted.get("changed_files")
    if commit is None or not changed:
        return commit
    return f"{commit}, with {changed} files changed or new since"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
