"""The history (run records): what the newest finished jobs took and used, each question asked once.

Who judges a whole queue asks the same for one job after another. What was read is kept, so a
history lives no longer than the transaction it reads in. Knows no queued job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, bindparam, func, select, text

from worker.db.tables import TRIED, attempt, job

LOOKED_AT = 10
"""Finished jobs that are asked, the newest ones."""
AMONG = 200
"""Of a kind that names its model: jobs among which those of one model are looked for."""

_NEWEST = (
    # Of the result only what is asked for: the whole of it may be large.
    select(
        job.c.id,
        job.c.kind,
        job.c.config,
        job.c.result["max_steps"].label("max_steps"),
        job.c.result["mem_trace"].label("mem_trace"),
        select(func.sum(attempt.c.seconds))
        .where(attempt.c.job_id == job.c.id)
        .scalar_subquery()
        .label("seconds"),
    )
    .where(text(TRIED))
    .order_by(job.c.id.desc())
    .limit(LOOKED_AT)
)
_OF_SAME = _NEWEST.where(job.c.config_hash == bindparam("wanted"))
_OF_KIND = _NEWEST.where(job.c.kind == bindparam("wanted"))
_OF_THESE = _NEWEST.where(job.c.id.in_(bindparam("wanted", expanding=True)))


_LAST_ATTEMPT = (
    select(attempt.c.job_id, attempt.c.seconds, attempt.c.cause)
    .where(attempt.c.job_id == bindparam("of_job"))
    .order_by(attempt.c.n.desc())
    .limit(1)
)

FRUITLESS = "NO_PROGRESS"
"""Cause of an attempt that ended, as the one before it, without a new checkpoint."""


class Done(NamedTuple):
    """A finished job."""

    kind: str
    config: Mapping[str, Any]
    result: Mapping[str, Any]
    """Its `max_steps` and `mem_trace`, alone."""
    seconds: float | None
    """What it was charged, over all of its attempts; None where that is not known."""


class History:
    """Of one moment."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._same: dict[str, Sequence[Done]] = {}
        self._kind: dict[str, Sequence[Done]] = {}
        self._model: dict[tuple[str, Any], Sequence[Done]] = {}

    def same(self, config_hash: str | None) -> Sequence[Done]:
        """The newest runs of the same experiment, newest first."""
        if config_hash is None:
            return ()
        if config_hash not in self._same:
            self._same[config_hash] = self._read(_OF_SAME, config_hash)
        return self._same[config_hash]

    def fruitless_s(self, job_ids: Sequence[int | None]) -> float | None:
        """How long the last attempt of one of these jobs was given in vain; None: none was.

        None and 0 are no job: nothing is asked about one that nobody has queued.
        """
        found = [
            row.seconds
            for one in job_ids
            if one  # 0 is no job's id
            for row in self._conn.execute(_LAST_ATTEMPT, {"of_job": one})
            if row.cause == FRUITLESS
        ]
        return max(found, default=None)

    def of_kind(self, kind: str) -> Sequence[Done]:
        """The newest runs of a kind, newest first."""
        if kind not in self._kind:
            self._kind[kind] = self._read(_OF_KIND, kind)
        return self._kind[kind]

    def of_model(self, kind: str, setting: str, model: Any) -> Sequence[Done]:
        """Of the newest runs of a kind those of one model, newest first."""
        if (kind, model) not in self._model:
            of_kind = _models(setting)
            rows = self._conn.execute(of_kind, {"wanted": kind}).all()
            ids = [row.id for row in rows if row.model == model][:LOOKED_AT]
            self._model[kind, model] = self._read(_OF_THESE, ids)
        return self._model[kind, model]

    def _read(self, newest: Select[Any], wanted: str | Sequence[int]) -> Sequence[Done]:
        return [
            Done(
                row.kind,
                row.config,
                {"max_steps": row.max_steps, "mem_trace": row.mem_trace},
                row.seconds,
            )
            for row in self._conn.execute(newest, {"wanted": wanted})
        ]


@cache
def _models(setting: str) -> Select[Any]:
    """(id, model) of the newest runs of a kind, newest first; built once."""
    path = tuple(setting.split("."))
    return (
        select(job.c.id, job.c.config[path].label("model"))
        .where(text(TRIED), job.c.kind == bindparam("wanted"))
        .order_by(job.c.id.desc())
        .limit(AMONG)
    )
