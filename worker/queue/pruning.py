"""Pruning: old runs give their disk space back and keep their numbers.

Gone: rollouts, metric rows but the held-out ones, and checkpoints but the published one, the one
that held-out picked, and of a run that can be tried again step 0, which its report compares with.
Kept: the row with its result, the audit, the attempts with their logs, events, lineage and report.
A run that another job still reads is left alone. Knows no door.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Row, delete, or_, select, update

from engine.contract.documents import read_json_object
from engine.contract.errors import NightlaneError
from engine.contract.run_dir import RunDir, step_of
from worker.db.connection import Database
from worker.db.tables import job, job_event, metric, metric_rollup
from worker.queue import watches
from worker.queue.lookup import job_row
from worker.queue.refusals import WrongStateError
from worker.queue.states import State, note

HELDOUT_SERIES = "heldout/%"
"""Metric rows that the report is made of."""

_SAID = "pruned: "
"""How the audit row of a prune begins."""
_ASIDE = ".pruned"
"""Folder of a run directory with what is being thrown away."""
_OVER = [state for state in State if state.final]
_ALIVE = [state for state in State if not state.final]


class PruneError(NightlaneError):
    """Files could not be put aside; the rows say that the job is not pruned."""

    def __init__(self, job_id: int, error: OSError) -> None:
        self.job_id = job_id
        super().__init__(
            f"job {job_id} cannot be pruned: {error.filename}: {error.strerror}; "
            "make its run directory writable for this user, then prune again"
        )


class Pruned(NamedTuple):
    """What one job gave back, or in a dry run would."""

    job_id: int
    bytes: int
    files: int


class Spared(NamedTuple):
    """A job that was due and left alone."""

    job_id: int
    why: str


class PruneReport(NamedTuple):
    """What a prune did."""

    pruned: list[Pruned]
    spared: list[Spared]


def prune_older(
    db: Database,
    older_than_s: float,
    *,
    actor: str,
    dry_run: bool = False,
    selected_too: bool = False,
) -> PruneReport:
    """Prune every job that ended more than `older_than_s` seconds ago. Raises PruneError."""
    cutoff = time.time() - older_than_s
    due = (
        select(job)
        .where(job.c.state.in_(_OVER), job.c.pruned_at.is_(None), job.c.finished_at < cutoff)
        .order_by(job.c.id)
    )
    with db.read() as conn:
        rows = conn.execute(due).all()
    if not dry_run:
        for aside in db.settings.runs_dir.glob(f"*/{_ASIDE}"):  # of a prune that was interrupted
            shutil.rmtree(aside, ignore_errors=True)
    report = PruneReport([], [])
    prune = partial(_prune, db, actor=actor, dry_run=dry_run, selected_too=selected_too)
    readers = list(paths_read(db))
    for row in rows:
        if _is_watched(db, row.id):
            report.spared.append(Spared(row.id, "its checkpoints wait to be scored"))
            continue
        reader = _reader_of(db, row, readers)
        if reader is not None:
            report.spared.append(Spared(row.id, f"job {reader} reads from it"))
            continue
        try:
            report.pruned.append(prune(row))
        except WrongStateError:
            report.spared.append(Spared(row.id, "somebody tried it again meanwhile"))
    return report


def prune_one(
    db: Database, job_id: int, *, actor: str, dry_run: bool = False, selected_too: bool = False
) -> Pruned:
    """Prune one job whatever its age.

    Raises JobNotFoundError, WrongStateError when it is not over or another job reads from it,
    PruneError.
    """
    with db.read() as conn:
        row = job_row(conn, job_id)
    if not State(row.state).final:
        raise WrongStateError(job_id, row.state, "only a job that is over can be pruned")
    if needed := needed_now(db, row):
        raise WrongStateError(job_id, *needed)
    return _prune(db, row, actor=actor, dry_run=dry_run, selected_too=selected_too)


def needed_now(db: Database, row: Row[Any]) -> tuple[str, str] | None:
    """What it is and what to do first, where a job that is not over needs a run's files."""
    if _is_watched(db, row.id):
        return "a run whose checkpoints wait to be scored", "a drain queues that; let it run first"
    reader = _reader_of(db, row, list(paths_read(db)))
    if reader is None:
        return None
    remedy = f"let that one end first, or cancel it: cockpit cancel {reader}"
    return f"read by job {reader}", remedy


def _is_watched(db: Database, job_id: int) -> bool:
    with db.read() as conn:
        return job_id in watches.runs_watched(conn)


def pruned_by(db: Database, job_id: int) -> str | None:
    """Who pruned a job last; None for a job that nobody pruned, or before prunes were audited."""
    said = (
        select(job_event.c.actor)
        .where(job_event.c.job_id == job_id, job_event.c.why.startswith(_SAID))
        .order_by(job_event.c.id.desc())
        .limit(1)
    )
    with db.read() as conn:
        return conn.execute(said).scalar_one_or_none()


def _prune(db: Database, row: Row[Any], *, actor: str, dry_run: bool, selected_too: bool) -> Pruned:
    run = RunDir(db.settings.runs_dir / str(row.id))
    kept = set() if selected_too else _kept(run, row)
    heavy = _heavy(run, kept)
    files = [file for path in heavy for file in _files_in(path)]
    found = Pruned(row.id, sum(file.lstat().st_size for file in files), len(files))
    if dry_run:
        return found
    # First the deed, then the word: on a full disk there is no room for the word before.
    db.urgently(partial(_take, db, row, run, heavy))
    shutil.rmtree(run.root / _ASIDE, ignore_errors=True)
    db.urgently(partial(_tell, db, row, _told(found, kept), actor))
    return found


def _take(db: Database, row: Row[Any], run: RunDir, heavy: Sequence[Path]) -> None:
    """Put the files aside while nobody can try the job again. Raises WrongStateError."""
    with db.write_tx() as conn:
        found = conn.execute(select(job.c.state).where(job.c.id == row.id)).scalar_one()
        if found != row.state:
            raise WrongStateError(row.id, "not over any more", "it was left alone")
        _put_aside(row.id, run, heavy)


def _tell(db: Database, row: Row[Any], told: str, actor: str) -> None:
    """Forget the numbers, and say what went; of a job that is tried again meanwhile say that alone.

    Where this was not written, the next prune finds nothing heavy and says it.
    """
    with db.write_tx() as conn:
        mine = update(job).where(job.c.id == row.id, job.c.state == row.state)
        if conn.execute(mine.values(pruned_at=time.time())).rowcount == 1:
            for table in (metric, metric_rollup):
                numbers = table.c.series.not_like(HELDOUT_SERIES)
                conn.execute(delete(table).where(table.c.job_id == row.id, numbers))
        state = conn.execute(select(job.c.state).where(job.c.id == row.id)).scalar_one()
        note(conn, row.id, State(state), actor=actor, why=_SAID + told)


def _told(found: Pruned, kept: Collection[str]) -> str:
    """One sentence: what went and what stays."""
    files = "1 file" if found.files == 1 else f"{found.files} files"
    named = f"checkpoint{'s' if len(kept) > 1 else ''} {', '.join(sorted(kept))}, " if kept else ""
    return (
        f"{files}, {found.bytes / 1e6:.1f} MB thrown away, and the metrics but the held-out ones; "
        f"kept: {named}held-out values, logs, events and report"
    )


def _put_aside(job_id: int, run: RunDir, heavy: Sequence[Path]) -> None:
    """Out of an engine's sight at once; throwing gigabytes away would keep the database locked."""
    try:
        for number, path in enumerate(heavy):
            (run.root / _ASIDE).mkdir(exist_ok=True)
            path.rename(run.root / _ASIDE / f"{time.time_ns()}-{number}")
    except OSError as error:
        raise PruneError(job_id, error) from error


def _heavy(run: RunDir, kept: Collection[str]) -> list[Path]:
    """Checkpoints and rollouts; links are looked at, never followed out of the run directory."""
    found = [entry for entry in _checkpoints(run) if entry.name not in kept]
    if run.rollouts.is_dir() and not run.rollouts.is_symlink():
        found.append(run.rollouts)
    if not kept:
        # neither leads to anything any more
        found += [path for path in (run.selected, run.base) if path.is_symlink() or path.exists()]
    return found


def _checkpoints(run: RunDir) -> list[Path]:
    return sorted(run.checkpoints.iterdir()) if run.checkpoints.is_dir() else []


def _kept(run: RunDir, row: Row[Any]) -> set[str]:
    """Names of the checkpoints that stay."""
    published = run.selected.readlink().name if run.selected.is_symlink() else None
    steps = {path.name: step_of(path.name) for path in _checkpoints(run)}
    picked = _picked(run, row)
    kept = {
        name
        for name, step in steps.items()
        if name == published or (step is not None and step == picked)
    }
    if kept and State(row.state).retryable:
        kept |= {name for name, step in steps.items() if step == 0}
    return kept


def _picked(run: RunDir, row: Row[Any]) -> int | None:
    """The step that held-out picked: as the result says, or the run card of a run without one."""
    step = (row.result or {}).get("selected_step")
    if isinstance(step, int):
        return step
    try:
        card = read_json_object(run.lineage)
        best = card["current_best"]
        return next((t["step"] for t in card["trials"] if t["name"] == best), None)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _files_in(path: Path) -> Iterator[Path]:
    if path.is_symlink() or path.is_file():
        yield path
        return
    for folder, _, names in os.walk(path):
        yield from (Path(folder, name) for name in names)


def paths_read(db: Database, states: Sequence[State] = _ALIVE) -> Iterator[tuple[int, str]]:
    """(job, its config as text) of every job in these states; by default of those that have yet to
    read what their config names.

    Behind it the same paths as the file system knows them: one place may go by many names.
    """
    asked = select(job.c.id, job.c.config).where(
        or_(*(job.c.state == state for state in states)), job.c.deleted_at.is_(None)
    )
    with db.read() as conn:
        for row in conn.execute(asked):
            named = [_real(text) for text in _texts_in(row.config) if "/" in text]
            yield row.id, json.dumps([row.config, named], ensure_ascii=False)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(inner)


def _real(text: str) -> str:
    """The path in a setting, which may follow a word such as `lora:`, without links."""
    try:
        return os.path.realpath(text[text.index("/") :])
    except (OSError, ValueError):  # no path after all
        return text


def _reader_of(db: Database, row: Row[Any], readers: Sequence[tuple[int, str]]) -> int | None:
    """The first of these jobs whose config names a path inside this one's run directory."""
    return next(readers_of(db, row, readers), None)


def readers_of(db: Database, row: Row[Any], readers: Sequence[tuple[int, str]]) -> Iterator[int]:
    """Those of these jobs whose config names a path inside this one's run directory."""
    root = db.settings.runs_dir / str(row.id)
    names = [json.dumps(name, ensure_ascii=False)[1:-1] for name in {str(root), _real(str(root))}]
    for reader, config in readers:
        if reader != row.id and any(f"{name}/" in config or f'{name}"' in config for name in names):
            yield reader
