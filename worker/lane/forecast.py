"""The forecast (runtime prediction): how long a job will yet hold the lane, from what ran here.

    same       the same experiment finished before: what it took
    kind       others of its kind finished: the median of their seconds a step, times its steps
    guess      nothing of the kind finished: NIGHTLANE_ESTIMATE_HOURS

A job that was begun is expected to need the share of its steps that is left. Knows no price.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, RowMapping, func, select, text

from worker.jobs.tables import TRIED, attempt, job
from worker.lane.ledger import SECONDS_PER_HOUR
from worker.settings import WorkerSettings

LOOKED_AT = 10
"""Finished jobs of a kind that are asked, the newest ones."""

Basis = Literal["same", "kind", "guess"]


class Expected(NamedTuple):
    """How long, and how that is known."""

    seconds: float
    basis: Basis
    runs: int
    """Finished jobs behind the number."""


def expected(conn: Connection, settings: WorkerSettings, candidate: RowMapping) -> Expected:
    """Seconds that a queued job will hold the lane; `candidate` is its row."""
    found = (
        _of_same(conn, candidate)
        or _of_kind(conn, candidate)
        or Expected(settings.estimate_hours * SECONDS_PER_HOUR, "guess", 0)
    )
    return found._replace(seconds=found.seconds * share_left(candidate["result"]))


def share_left(result: Mapping[str, Any]) -> float:
    """The part of a run that is yet to come, 0 to 1.

    >>> share_left({"step": 30, "max_steps": 40})
    0.25
    """
    step, steps = result.get("step"), result.get("max_steps")
    if not isinstance(step, int) or not isinstance(steps, int) or steps < 1:
        return 1.0
    return min(1.0, max(0.0, 1 - step / steps))


def _of_same(conn: Connection, candidate: RowMapping) -> Expected | None:
    if candidate["config_hash"] is None:
        return None
    chosen = (
        select(job.c.id)
        .where(text(TRIED), job.c.config_hash == candidate["config_hash"])
        .order_by(job.c.id.desc())
        .limit(LOOKED_AT)
    )
    taken = _seconds(conn, list(conn.execute(chosen).scalars()))
    if not taken:
        return None
    return Expected(statistics.median(taken.values()), "same", len(taken))


def _of_kind(conn: Connection, candidate: RowMapping) -> Expected | None:
    newest = (
        select(job.c.id, job.c.config, job.c.result)
        .where(text(TRIED), job.c.kind == candidate["kind"])
        .order_by(job.c.id.desc())
        .limit(LOOKED_AT)
    )
    rows = conn.execute(newest).mappings().all()
    taken = _seconds(conn, [row["id"] for row in rows])
    if not taken:
        return None
    wanted = _steps(candidate)
    paces = [
        taken[row["id"]] / steps for row in rows if row["id"] in taken and (steps := _steps(row))
    ]
    if wanted and paces:
        return Expected(statistics.median(paces) * wanted, "kind", len(paces))
    return Expected(statistics.median(taken.values()), "kind", len(taken))


def _seconds(conn: Connection, job_ids: list[int]) -> dict[int, float]:
    """What each job was charged, over all of its attempts."""
    charged = (
        select(attempt.c.job_id, func.sum(attempt.c.seconds))
        .where(attempt.c.job_id.in_(job_ids))
        .group_by(attempt.c.job_id)
    )
    return {job_id: float(seconds) for job_id, seconds in conn.execute(charged)}


def _steps(row: RowMapping) -> int | None:
    """How many steps a job's config asks for."""
    for source, name in (
        (row["config"], "max_steps"),
        (row["config"], "steps"),
        (row["result"], "max_steps"),
    ):
        value = source.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
