"""Numbers that are taken by what stands on the disk: a run directory belongs to one job for ever.

A database that is new, or brought back from a copy, may know less than the run directories beside
it. Without this a new job would find another one's checkpoints under its number and go on from
them, and an attempt would write over the evidence of an earlier one. Where somebody has put a file
in the database's place by hand, the directory that is found under a number moves aside.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from engine.contract.run_dir import RunDir

_DIGITS = 9
"""Of the largest number that is believed to be a job's: a longer name is somebody else's."""

_SQLITE = (
    "UPDATE sqlite_sequence SET seq = max(seq, :newest) WHERE name = 'job'",
    "INSERT INTO sqlite_sequence (name, seq) SELECT 'job', :newest "
    "WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'job')",
)
_POSTGRESQL = "SELECT setval(pg_get_serial_sequence('job', 'id'), %(newest)s)"


def taken(runs: Path) -> Iterator[tuple[int, int]]:
    """(job, its newest attempt; 0 for none) of each run directory."""
    if not runs.is_dir():
        return
    for entry in runs.iterdir():
        name = entry.name
        if name.isascii() and name.isdecimal() and len(name) <= _DIGITS and entry.is_dir():
            yield int(entry.name), RunDir(entry).latest_attempt()


def reserve(conn: Connection, runs: Path) -> None:
    """In a new database: no job gets the number of a run directory."""
    newest = _newest(runs)
    if newest:
        for statement in _SQLITE if conn.dialect.name == "sqlite" else [_POSTGRESQL]:
            conn.exec_driver_sql(statement, {"newest": newest})


def reserve_in_copy(copy: Any, runs: Path) -> None:
    """In a copy of the database, opened by SQLite's own driver: neither a job nor an attempt that
    comes gets a number that is taken.
    """
    for statement in _SQLITE:
        copy.execute(statement, {"newest": _newest(runs)})
    copy.executemany(
        "UPDATE job SET attempt = :n WHERE id = :job AND attempt < :n",
        [{"job": number, "n": attempt} for number, attempt in taken(runs)],
    )
    copy.commit()


def set_aside(run: RunDir) -> Path:
    """Move a run directory out of the way of the job that has its number now; returns where to.

    Raises OSError.
    """
    for n in itertools.count(1):
        place = run.root.with_name(f"{run.root.name}.before-{n}")
        if not place.exists():
            break
    run.root.rename(place)
    return place


def _newest(runs: Path) -> int:
    return max((number for number, _ in taken(runs)), default=0)
