"""What `cockpit passk` and `cockpit eval` share: which checkpoint is meant, and its job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from app.cli.enqueue import assign, enqueue_one, try_out
from engine.contract.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from worker.db.connection import Database


class Ordered(NamedTuple):
    """How the job is queued."""

    name: str
    priority: int
    force: bool
    dry_run: bool
    as_json: bool
    assignments: Sequence[str] = ()
    """`KEY=VALUE`, the last word about the config."""


def place_of(database: Database, checkpoint: str) -> str:
    """A job's number is what it published; a folder of that name is the folder."""
    from worker.read import jobs  # noqa: PLC0415 - keeps --help light

    if not checkpoint.isdecimal() or Path(checkpoint).exists():
        return checkpoint
    job = jobs.get_job(database, int(checkpoint[:18]))
    run = Path(job.run_dir)
    if not (run / "selected").is_dir():
        problem = f"is a job without a checkpoint (it is {job.state})"
        remedy = "name another job, or a folder"
        raise ConfigError([ConfigProblem("CHECKPOINT", checkpoint, problem, remedy)])
    return str(run)


def order(database: Database, raw: Mapping[str, Any], ordered: Ordered) -> None:
    """Queue an evaluation and print its id, or with `dry_run` what it would be."""
    from engine.contract.evaluate.of_run import EVALUATION  # noqa: PLC0415 - keeps --help light
    from worker.queue.submission import MAX_NAME, submission  # noqa: PLC0415

    config = dict(raw)
    for assignment in ordered.assignments:
        assign(config, assignment)
    name = ordered.name if len(ordered.name) <= MAX_NAME else f"{ordered.name[: MAX_NAME - 1]}…"
    wanted = submission(
        {
            "kind": EVALUATION,
            "config": config,
            "name": name,
            "priority": ordered.priority,
            "force": ordered.force,
        }
    )
    if ordered.dry_run:
        try_out(database, wanted, as_json=ordered.as_json)
    else:
        enqueue_one(database, wanted, None, as_json=ordered.as_json)
