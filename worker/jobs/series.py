"""The read side of measured values: each series in a line, and curves of bounded length.

A curve is read at the finest level that keeps it under the wanted number of points: the values
themselves, or stretches of steps with their lowest, highest, first and last value. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, select

from engine.contract.errors import NightlaneError
from worker.database import Database
from worker.jobs.rollups import LARGEST, SIZES
from worker.jobs.tables import metric, metric_rollup

MOST_POINTS = 1000
"""As many as a chart has pixels to tell apart, each with its lowest and highest value."""
MOST_VALUES = 50_000
"""Answered at once as they are; a longer series is asked for in parts or as points."""


class TooManyValuesError(NightlaneError):
    """More measured values than one answer may hold."""

    def __init__(self, job_id: int, n: int) -> None:
        self.job_id, self.n = job_id, n
        super().__init__(
            f"job {job_id} has {n} of these values, more than {MOST_VALUES} in one answer; ask for "
            "one series, for a part with from=STEP and to=STEP, or for a curve with points=1000"
        )


class Steps(NamedTuple):
    """From one step to another, both with it; None: to the end of the run."""

    first: int | None = None
    last: int | None = None


EVERY_STEP = Steps()


class Summary(NamedTuple):
    """All values of a series."""

    n: int
    low: float
    high: float
    first_step: int
    first: float
    first_at: float | None
    """Unix seconds; None for values older than schema 0004."""
    last_step: int
    last: float
    last_at: float | None


class Point(NamedTuple):
    """One value, or a stretch of several."""

    first_step: int
    step: int
    """Of the last value."""
    value: float
    """The last one."""
    low: float
    high: float
    mean: float
    n: int
    at: float | None
    """When the last one was measured."""


class Curve(NamedTuple):
    """A series in at most about the wanted number of points."""

    size: int
    """Steps in a point; 1: the values themselves."""
    points: Sequence[Point]

    @property
    def n(self) -> int:
        """Values that the points stand for."""
        return sum(point.n for point in self.points)


def summaries(db: Database, job_id: int, names: Sequence[str] | None = None) -> dict[str, Summary]:
    """Each series of a job (or those named that it has), by name."""
    with db.read() as conn:
        return _summaries(conn, job_id, names)


def curves(
    db: Database,
    job_id: int,
    names: Sequence[str],
    steps: Steps = EVERY_STEP,
    most: int = MOST_POINTS,
) -> dict[str, Curve]:
    """Curves of some steps; a series without a value there is absent.

    A stretch that lies across an end of the range is left out.
    """
    found: dict[str, Curve] = {}
    with db.read() as conn:
        for size, alike in _by_size(_summaries(conn, job_id, names), steps, most).items():
            if size == 1:
                points = _values(conn, job_id, alike, steps)
            else:
                points = _stretches(conn, job_id, alike, size, steps)
            found |= {name: Curve(size, _thinned(points[name], most)) for name in points}
    return found


def tail(
    db: Database, job_id: int, name: str, limit: int, up_to: int | None = None
) -> list[tuple[int, float]]:
    """The newest values of a series (up to a step) as (step, value), oldest first."""
    statement = (
        select(metric.c.step, metric.c.value)
        .where(metric.c.job_id == job_id, metric.c.series == name)
        .order_by(metric.c.step.desc())
        .limit(limit)
    )
    if up_to is not None:
        statement = statement.where(metric.c.step <= up_to)
    with db.read() as conn:
        return [(row.step, row.value) for row in conn.execute(statement)][::-1]


def values(
    db: Database, job_id: int, names: Sequence[str] | None, steps: Steps = EVERY_STEP
) -> dict[str, list[tuple[int, float]]]:
    """The values themselves as {series: [(step, value), …]}. Raises TooManyValuesError."""
    statement = (
        select(metric.c.series, metric.c.step, metric.c.value)
        .where(metric.c.job_id == job_id)
        .order_by(metric.c.series, metric.c.step)
        .limit(MOST_VALUES + 1)
    )
    if names is not None:
        statement = statement.where(metric.c.series.in_(names))
    if steps.first is not None:
        statement = statement.where(metric.c.step >= steps.first)
    if steps.last is not None:
        statement = statement.where(metric.c.step <= steps.last)
    found: dict[str, list[tuple[int, float]]] = {}
    with db.read() as conn:
        rows = conn.execute(statement).all()
        if len(rows) > MOST_VALUES:
            whole = _summaries(conn, job_id, names).values()
            raise TooManyValuesError(job_id, sum(summary.n for summary in whole))
    for name, step, value in rows:
        found.setdefault(name, []).append((step, value))
    return found


def attempts_began(db: Database, job_id: int, name: str) -> list[tuple[int, int]]:
    """(attempt, first step that still counts) of a series, in the order of the steps."""
    rows = (
        select(metric.c.step, metric.c.attempt)
        .where(metric.c.job_id == job_id, metric.c.series == name)
        .order_by(metric.c.step)
    )
    found: list[tuple[int, int]] = []
    with db.read() as conn:
        while True:
            behind = rows if not found else rows.where(metric.c.attempt > found[-1][0])
            row = conn.execute(behind.limit(1)).one_or_none()
            if row is None:
                return found
            found.append((row.attempt, row.step))


def _summaries(conn: Connection, job_id: int, names: Sequence[str] | None) -> dict[str, Summary]:
    rolled = metric_rollup.c
    statement = (
        select(metric_rollup)
        .where(rolled.job_id == job_id, rolled.size == LARGEST)
        .order_by(rolled.series, rolled.bucket)
    )
    if names is not None:
        statement = statement.where(rolled.series.in_(names))
    found: dict[str, Summary] = {}
    for row in conn.execute(statement):
        so_far = found.get(row.series)
        mine = Summary(
            row.n, row.low, row.high, row.first_step, row.first, row.first_at,
            row.last_step, row.last, row.last_at,
        )  # fmt: skip
        found[row.series] = mine if so_far is None else _joined(so_far, mine)
    return found


def _joined(before: Summary, behind: Summary) -> Summary:
    return behind._replace(
        n=before.n + behind.n,
        low=min(before.low, behind.low),
        high=max(before.high, behind.high),
        first_step=before.first_step,
        first=before.first,
        first_at=before.first_at,
    )


def _by_size(found: dict[str, Summary], wanted: Steps, most: int) -> dict[int, list[str]]:
    """Each series at the finest level whose points cannot be more than `most`."""
    sizes: dict[int, list[str]] = {}
    for name, summary in found.items():
        low = summary.first_step if wanted.first is None else max(wanted.first, summary.first_step)
        high = summary.last_step if wanted.last is None else min(wanted.last, summary.last_step)
        steps = high - low + 1
        if steps < 1:
            continue
        fitting = [size for size in (1, *SIZES) if min(summary.n, -(-steps // size)) <= most]
        sizes.setdefault(fitting[0] if fitting else LARGEST, []).append(name)
    return sizes


def _values(
    conn: Connection, job_id: int, names: list[str], steps: Steps
) -> dict[str, list[Point]]:
    statement = (
        select(metric.c.series, metric.c.step, metric.c.value, metric.c.at)
        .where(metric.c.job_id == job_id, metric.c.series.in_(names))
        .order_by(metric.c.series, metric.c.step)
    )
    if steps.first is not None:
        statement = statement.where(metric.c.step >= steps.first)
    if steps.last is not None:
        statement = statement.where(metric.c.step <= steps.last)
    found: dict[str, list[Point]] = {}
    for name, step, value, at in conn.execute(statement).all():
        point = Point(step, step, value, value, value, value, 1, at)
        found.setdefault(name, []).append(point)
    return found


def _stretches(
    conn: Connection, job_id: int, names: list[str], size: int, steps: Steps
) -> dict[str, list[Point]]:
    rolled = metric_rollup.c
    statement = (
        select(
            rolled.series,
            rolled.first_step,
            rolled.last_step,
            rolled.last,
            rolled.low,
            rolled.high,
            rolled.total / rolled.n,
            rolled.n,
            rolled.last_at,
        )
        .where(rolled.job_id == job_id, rolled.series.in_(names), rolled.size == size)
        .order_by(rolled.series, rolled.bucket)
    )
    if steps.first is not None:
        statement = statement.where(
            rolled.bucket >= steps.first // size, rolled.first_step >= steps.first
        )
    if steps.last is not None:
        statement = statement.where(
            rolled.bucket <= steps.last // size, rolled.last_step <= steps.last
        )
    found: dict[str, list[Point]] = {}
    for name, *point in conn.execute(statement).all():
        found.setdefault(name, []).append(Point(*point))
    return found


def _thinned(points: list[Point], most: int) -> list[Point]:
    """Neighbours put together until there are few enough: only beyond the largest stretch."""
    while len(points) > most:
        points = [_together(points[at : at + 2]) for at in range(0, len(points), 2)]
    return points


def _together(part: Sequence[Point]) -> Point:
    n = sum(point.n for point in part)
    return part[-1]._replace(
        first_step=part[0].first_step,
        low=min(point.low for point in part),
        high=max(point.high for point in part),
        mean=sum(point.mean * point.n for point in part) / n,
        n=n,
    )
