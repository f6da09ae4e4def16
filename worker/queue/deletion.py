"""Deletion: a run's directory and numbers go for good; its row stays for the audit and the ledger.

Never of a job that is not over, nor of one that such a job reads from. Where a finished run began
from one of its checkpoints, that is said first and has to be confirmed. Knows no door.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, delete, select, update

from engine.contract.errors import NightlaneError
from engine.contract.run_dir import RunDir
from worker.db.connection import Database
from worker.db.tables import eval_score, job, job_tag, metric, metric_rollup, state_count
from worker.queue import pruning
from worker.queue.lookup import job_row
from worker.queue.refusals import WrongStateError
from worker.queue.states import State, note

_ASIDE = ".deleted-"
"""How the folder begins that a run directory becomes on its way out."""


class DeleteError(NightlaneError):
    """The files could not be put aside; nothing was deleted."""

    def __init__(self, job_id: int, error: OSError) -> None:
        self.job_id = job_id
        super().__init__(
            f"job {job_id} cannot be deleted: {error.filename}: {error.strerror}; "
            "make its run directory writable for this user, then delete it again"
        )


class Deletion(NamedTuple):
    """What a deletion gives back, and who misses it."""

    job_id: int
    name: str
    bytes: int
    refused: str | None
    """Why it must not be, in a sentence."""
    descendants: list[int]
    """Runs that are over and began from its files: theirs can be looked at, not made again."""


def foreseen(db: Database, job_id: int) -> Deletion:
    """What a deletion would do, without doing it. Raises JobNotFoundError."""
    with db.read() as conn:
        row = job_row(conn, job_id)
    root = db.settings.runs_dir / str(job_id)
    refused = _refusal(db, row)
    said = f"job {job_id} is {refused[0]}: {refused[1]}" if refused else None
    return Deletion(job_id, row.name, _bytes_in(root), said, _descendants(db, row))


def delete_run(db: Database, job_id: int, *, actor: str, descendants_too: bool = False) -> Deletion:
    """Throw a run's files and numbers away. `descendants_too`: though runs began from it.

    Raises JobNotFoundError, WrongStateError where it must not be, DeleteError.
    """
    with db.read() as conn:
        row = job_row(conn, job_id)
    if refused := _refusal(db, row):
        raise WrongStateError(job_id, *refused)
    found = foreseen(db, job_id)
    if found.descendants and not descendants_too:
        named = ", ".join(map(str, found.descendants))
        remedy = f"say so to delete it all the same: cockpit delete {job_id} --with-descendants"
        raise WrongStateError(job_id, f"what job {named} began from", remedy)
    root = RunDir(db.settings.runs_dir / str(job_id)).root
    aside = root.with_name(f"{_ASIDE}{job_id}-{time.time_ns()}")
    with db.write_tx() as conn:
        state = conn.execute(select(job.c.state).where(job.c.id == job_id)).scalar_one()
        if state != row.state:
            raise WrongStateError(job_id, state, "it was left alone")
        _forget(conn, row, actor=actor, freed=found.bytes)
        try:
            if root.exists():
                root.rename(aside)
        except OSError as error:
            raise DeleteError(job_id, error) from error
    shutil.rmtree(aside, ignore_errors=True)
    return found


def _refusal(db: Database, row: Row[Any]) -> tuple[str, str] | None:
    """What it is, and what to do, where it must not be deleted."""
    if row.deleted_at is not None:
        return "deleted already", "there is nothing left of it"
    if not State(row.state).final:
        return str(row.state), f"only a run that is over can be deleted; cockpit cancel {row.id}"
    return pruning.needed_now(db, row)


def _descendants(db: Database, row: Row[Any]) -> list[int]:
    over = [state for state in State if state.final]
    paths = pruning.paths_read(db, over)
    return sorted(set(pruning.readers_of(db, row, list(paths))))


def _forget(conn: Connection, row: Row[Any], *, actor: str, freed: int) -> None:
    """The numbers go, what finds the run by its content too; no counter counts it any more."""
    for table in (metric, metric_rollup, eval_score, job_tag):
        conn.execute(delete(table).where(table.c.job_id == row.id))
    now = time.time()
    gone: dict[str, Any] = {
        "result": {},
        "config_hash": None,
        "data_hash": None,
        "group_hash": None,
    }
    marks = {"deleted_at": now, "pruned_at": now, "archived_at": now}
    conn.execute(update(job).where(job.c.id == row.id).values({**gone, **marks}))
    said = f"deleted: {freed / 1e6:.1f} MB thrown away with its metrics, scores and tags"
    note(conn, row.id, State(row.state), actor=actor, why=said)
    fewer = {"n": state_count.c.n - 1}
    conn.execute(update(state_count).where(state_count.c.state == row.state).values(fewer))


def _bytes_in(root: os.PathLike[str]) -> int:
    return sum(_sizes(root))


def _sizes(root: os.PathLike[str]) -> Iterator[int]:
    """Of every file, a link counting as itself; what goes meanwhile counts nothing."""
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                yield os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - in a hot loop
            except OSError:
                continue
