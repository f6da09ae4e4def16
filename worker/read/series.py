"""The read side of measured values: each series in a line, and curves of bounded length.

A curve is read at the finest level that keeps it under the wanted number of points: the values
themselves, or stretches of steps with their lowest, highest, first and last value, where it helps
two of them put together. Writes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, bindparam, func, select

from engine.contract.errors import NightlaneError
from engine.contract.known import whole
from worker.attempt.ingest import NO_NUMBERS
from worker.db.connection import Database
from worker.db.metrics import LARGEST, SIZES
from worker.db.tables import metric, metric_rollup

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


T = TypeVar("T")


class Steps(NamedTuple):
    """From one step to another, both with it; None: to the end of the run."""

    first: int | None = None
    last: int | None = None

    def holds(self, step: int) -> bool:
        """Whether a step is one of them."""
        return (self.first is None or self.first <= step) and (
            self.last is None or step <= self.last
        )


EVERY_STEP = Steps()


Gaps = Mapping[str, Sequence[tuple[int, int]]]
"""By series, from which step to which what was measured was no number."""


def gaps_of(result: Mapping[str, Any], steps: Steps = EVERY_STEP) -> Gaps:
    """As the result says it, inside some steps; what is of another form says nothing."""
    said = result.get(NO_NUMBERS)
    if not isinstance(said, Mapping):
        return {}
    found = {
        name: [
            (first, last)
            for first, last in (map(whole, one) for one in ranges if _is_pair(one))
            if first is not None and last is not None and steps.holds(first)
        ]
        for name, ranges in said.items()
        if isinstance(ranges, list)
    }
    return {name: ranges for name, ranges in found.items() if ranges}


def with_gaps(
    found: Mapping[str, Sequence[tuple[int, float]]], gaps: Gaps
) -> dict[str, list[tuple[int, float | None]]]:
    """Values with a None where each gap begins; a series may be nothing but gaps."""
    return {
        name: sorted(
            [*found.get(name, ()), *((first, None) for first, _ in gaps.get(name, ()))], key=_step
        )
        for name in dict.fromkeys((*found, *gaps))
    }


def _step(point: tuple[int, float | None]) -> int:
    return point[0]


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2


class Summary(NamedTuple):
    """All values of a series. Two that are equal stand for the same values."""

    n: int
    total: float
    low: float
    high: float
    first_step: int
    first: float
    first_at: float | None
    """Unix seconds; None where the event did not say."""
    last_step: int
    last: float
    last_at: float | None


class Curve(NamedTuple):
    """A series in at most about the wanted number of points, as columns of one length.

    A point is one value, or a stretch of several steps.
    """

    size: int
    """Steps in a point; 1: the values themselves."""
    first_steps: Sequence[int]
    steps: Sequence[int]
    """Of the last value in each point."""
    values: Sequence[float]
    """The last ones."""
    lows: Sequence[float]
    highs: Sequence[float]
    means: Sequence[float]
    counts: Sequence[int]
    """Values in each point."""
    moments: Sequence[float | None]
    """When each last one was measured, in Unix seconds."""

    @classmethod
    def of_values(
        cls, steps: Sequence[int], values: Sequence[float], moments: Sequence[float | None]
    ) -> Curve:
        """The values themselves."""
        return cls(1, steps, steps, values, values, values, values, (1,) * len(steps), moments)

    @property
    def n(self) -> int:
        """Values that the points stand for."""
        return sum(self.counts)

    def within(self, steps: Steps) -> Curve:
        """Its points in some steps."""
        begin = 0 if steps.first is None else bisect_left(self.first_steps, steps.first)
        end = len(self.steps) if steps.last is None else bisect_right(self.steps, steps.last)
        columns = (column[begin : max(begin, end)] for column in self[1:])
        return Curve._make((self.size, *columns))


def summaries(db: Database, job_id: int, names: Sequence[str] | None = None) -> dict[str, Summary]:
    """Each series of a job (or those named that it has), by name."""
    with db.read() as conn:
        return _summaries(conn, job_id, names)


def curves(
    db: Database,
    job_id: int,
    names: Sequence[str] | None = None,
    steps: Steps = EVERY_STEP,
    most: int = MOST_POINTS,
) -> dict[str, Curve]:
    """Curves of some steps, of all series or those named; one without a value there is absent.

    A stretch that lies across an end of the range is left out.
    """
    found: dict[str, Curve] = {}
    with db.read() as conn:
        for name, summary in _summaries(conn, job_id, names).items():
            size = _size(summary, steps, most)
            curve = None if size is None else _curve(conn, job_id, name, size, steps)
            if curve is not None:
                found[name] = _thinned(curve, most)
    return found


def curves_through(
    db: Database, job_id: int, names: Sequence[str], steps: Steps, most: int = MOST_POINTS
) -> dict[str, Curve]:
    """Curves of some steps and of the nearest value on either side of them: what is measured rarely
    runs through a part between two of its values.
    """
    return {
        name: curve
        for name in names
        for curve in curves(db, job_id, [name], _through(db, job_id, name, steps), most).values()
    }


def leads(db: Database, job_id: int, known: Mapping[str, Curve], points: int) -> dict[str, Curve]:
    """What leads up to curves: at most so many points before the first one, of the same size."""
    found: dict[str, Curve] = {}
    with db.read() as conn:
        for name, curve in known.items():
            lead = _lead(conn, job_id, name, curve, points)
            if lead is not None:
                found[name] = lead
    return found


def tail(
    db: Database, job_id: int, name: str, limit: int, up_to: int | None = None
) -> list[tuple[int, float]]:
    """The newest values of a series (up to a step) as (step, value), oldest first."""
    last = _MAX_STEP if up_to is None else up_to
    asked = {"job": job_id, "series": name, "last": last, "most": limit}
    with db.read() as conn:
        rows = conn.execute(_TAIL, asked).all()
    return [(row.step, row.value) for row in rows][::-1]


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
    """From the largest stretches alone."""
    if names is None:
        rows = conn.execute(_LARGEST, {"job": job_id}).all()
    else:
        rows = [
            row
            for name in names
            for row in conn.execute(_LARGEST_OF, {"job": job_id, "series": name})
        ]
    stretches: dict[str, list[Any]] = {}
    for row in rows:
        stretches.setdefault(row.series, []).append(row)
    return {name: _of_all(found) for name, found in stretches.items()}


def _of_all(stretches: Sequence[Any]) -> Summary:
    """Rows of `_LARGEST`, all of one series."""
    begin, end = stretches[0], stretches[-1]
    return Summary(
        n=sum(row.n for row in stretches),
        total=sum(row.total for row in stretches),
        low=min(row.low for row in stretches),
        high=max(row.high for row in stretches),
        first_step=begin.first_step,
        first=begin.first,
        first_at=begin.first_at,
        last_step=end.last_step,
        last=end.last,
        last_at=end.last_at,
    )


def _size(summary: Summary, wanted: Steps, most: int) -> int | None:
    """The fewest steps in a point with which there cannot be more than `most`; None: no step."""
    low = summary.first_step if wanted.first is None else max(wanted.first, summary.first_step)
    high = summary.last_step if wanted.last is None else min(wanted.last, summary.last_step)
    steps = high - low + 1
    if steps < 1:
        return None
    if min(summary.n, steps) <= most:
        return 1
    # Stretches begin at multiples of their size, wherever the steps begin.
    return next((size for size in _DRAWN if high // size - low // size < most), LARGEST)


def _curve(conn: Connection, job_id: int, name: str, size: int, steps: Steps) -> Curve | None:
    """At one level; None without a value in these steps."""
    stored = size if size in _STORED else size // 2
    first = 0 if steps.first is None else steps.first
    last = _MAX_STEP if steps.last is None else steps.last
    asked = {"job": job_id, "series": name, "first": first, "last": last}
    if stored == 1:
        columns = _columns(conn.execute(_VALUES, asked))
        found = Curve.of_values(*columns) if columns else None
    else:
        ends = {"low": first // stored, "high": last // stored}
        columns = _columns(conn.execute(_STRETCHES, {**asked, **ends, "size": stored}))
        found = _of_stretches(stored, *columns) if columns else None
    return found if found is None or size == stored else _doubled(found)


def _columns(found: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows as columns; none without a row."""
    return list(zip(*found, strict=True))


def _through(db: Database, job_id: int, name: str, steps: Steps) -> Steps:
    first, last = steps
    mine = (metric.c.job_id == job_id, metric.c.series == name)
    with db.read() as conn:
        if first is not None:
            before = select(func.max(metric.c.step)).where(*mine, metric.c.step <= first)
            nearest = conn.execute(before).scalar_one()
            first = first if nearest is None else nearest
        if last is not None:
            behind = select(func.min(metric.c.step)).where(*mine, metric.c.step >= last)
            nearest = conn.execute(behind).scalar_one()
            last = last if nearest is None else nearest
    return Steps(first, last)


def _lead(conn: Connection, job_id: int, name: str, curve: Curve, points: int) -> Curve | None:
    end = curve.first_steps[0]
    if curve.size > 1:
        # The stretch that the part's first step cuts in two is not in the curve: it is here.
        steps = Steps(max(0, end - curve.size * points), end - 1)
        return _curve(conn, job_id, name, curve.size, steps)
    newest = (
        select(metric.c.step, metric.c.value, metric.c.at)
        .where(metric.c.job_id == job_id, metric.c.series == name, metric.c.step < end)
        .order_by(metric.c.step.desc())
        .limit(points)
    )
    rows = conn.execute(newest).all()[::-1]
    return Curve.of_values(*zip(*rows, strict=True)) if rows else None


def _of_stretches(size: int, *columns: Sequence[Any]) -> Curve:
    firsts, steps, values, lows, highs, totals, counts, moments = columns
    means = [total / n for total, n in zip(totals, counts, strict=True)]
    return Curve(size, firsts, steps, values, lows, highs, means, counts, moments)


def _thinned(curve: Curve, most: int) -> Curve:
    """Stretches put together until there are few enough: only beyond the largest ones."""
    while len(curve.steps) > most:
        curve = _doubled(curve)
    return curve


def _doubled(curve: Curve) -> Curve:
    """Twice as many steps in a point: neighbours that share one are put together."""
    size, (_, firsts, steps, values, lows, highs, means, counts, moments) = curve.size * 2, curve
    stretch = [step // size for step in steps]
    begins = [0, *(at for at, (a, b) in enumerate(pairwise(stretch), 1) if a != b)]
    ends = [*(begin - 1 for begin in begins[1:]), len(steps) - 1]
    pairs = list(zip(begins, ends, strict=True))  # twice the same place, or two neighbours
    n = [counts[a] + counts[b] if a < b else counts[a] for a, b in pairs]
    totals = [means[a] * counts[a] + (means[b] * counts[b] if a < b else 0) for a, b in pairs]
    return Curve(
        size,
        [firsts[a] for a in begins],
        [steps[b] for b in ends],
        [values[b] for b in ends],
        [min(lows[a], lows[b]) for a, b in pairs],
        [max(highs[a], highs[b]) for a, b in pairs],
        [total / times for total, times in zip(totals, n, strict=True)],
        n,
        [moments[b] for b in ends],
    )


_STORED = (1, *SIZES)
_DRAWN = sorted({*_STORED, *(size * 2 for size in _STORED)})
"""Steps in a point: as stored, and two of them together."""
_MAX_STEP = 2**31 - 1
"""The largest number of a column on every database."""

_rolled = metric_rollup.c
_LARGEST = (
    select(
        _rolled.series,
        _rolled.n,
        _rolled.total,
        _rolled.low,
        _rolled.high,
        _rolled.first_step,
        _rolled.first,
        _rolled.first_at,
        _rolled.last_step,
        _rolled.last,
        _rolled.last_at,
    )
    .where(_rolled.job_id == bindparam("job"), _rolled.size == LARGEST)
    .order_by(_rolled.series, _rolled.bucket)
)
_LARGEST_OF = _LARGEST.where(_rolled.series == bindparam("series"))
_STRETCHES = (
    select(
        _rolled.first_step,
        _rolled.last_step,
        _rolled.last,
        _rolled.low,
        _rolled.high,
        _rolled.total,
        _rolled.n,
        _rolled.last_at,
    )
    .where(
        _rolled.job_id == bindparam("job"),
        _rolled.size == bindparam("size"),
        _rolled.series == bindparam("series"),
        _rolled.bucket >= bindparam("low"),
        _rolled.bucket <= bindparam("high"),
        _rolled.first_step >= bindparam("first"),
        _rolled.last_step <= bindparam("last"),
    )
    .order_by(_rolled.bucket)
)
_VALUES = (
    select(metric.c.step, metric.c.value, metric.c.at)
    .where(
        metric.c.job_id == bindparam("job"),
        metric.c.series == bindparam("series"),
        metric.c.step >= bindparam("first"),
        metric.c.step <= bindparam("last"),
    )
    .order_by(metric.c.step)
)
_TAIL = (
    select(metric.c.step, metric.c.value)
    .where(
        metric.c.job_id == bindparam("job"),
        metric.c.series == bindparam("series"),
        metric.c.step <= bindparam("last"),
    )
    .order_by(metric.c.step.desc())
    .limit(bindparam("most"))
)


def evenly(found: Sequence[T], most: int) -> list[T]:
    """At most so many, from the first to the last, as far apart from one another as can be."""
    if len(found) <= most:
        return list(found)
    last = len(found) - 1
    return [found[round(place * last / (most - 1))] for place in range(most)]
