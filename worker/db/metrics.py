"""Rollups of the metric rows: of every stretch of steps its lowest, highest, first and last value.

Stretches of 8, 32, 128, 512 and 4096 steps, so that a chart of a hundred thousand steps is one
small read and no spike is lost. They are written in the transaction that writes the rows, and
always made anew from those rows: whatever is replayed or replaced, a rollup says what they say.
Knows no event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from sqlalchemy import Connection, TextClause, and_, bindparam, delete, select, text

from worker.db.tables import metric_rollup

SIZES = (8, 32, 128, 512, 4096)
"""Steps in a stretch. Each is a multiple of the one before, from which it is made."""
LARGEST = SIZES[-1]
LONGEST_NAME = 300
"""Characters of the name of a series, in an address too."""

Reach = Mapping[str, tuple[int, int]]
"""Series → the lowest and the highest of its steps."""

_MOST_NAMES = 500
"""In one statement; a database allows some thousand parameters."""
_WARMUP = "warmup/%"


def roll_up(conn: Connection, job_id: int, touched: Reach) -> None:
    """Bring the stretches of the steps that were written up to date, in the same transaction."""
    alike: dict[tuple[int, int], list[str]] = {}
    for series, (first, last) in touched.items():
        alike.setdefault((first // SIZES[0], last // SIZES[0]), []).append(series)
    for (low, high), names in alike.items():
        for start in range(0, len(names), _MOST_NAMES):
            some = names[start : start + _MOST_NAMES]
            _roll(conn, job_id, some, low * SIZES[0], high * SIZES[0])


def take_back(conn: Connection, job_id: int, behind: int | None) -> None:
    """Follow the removal of a job's rows behind a step (None: of all); warm-up steps stay then."""
    if behind is None:
        conn.execute(delete(metric_rollup).where(metric_rollup.c.job_id == job_id))
        return
    gone = and_(
        metric_rollup.c.job_id == job_id,
        metric_rollup.c.last_step > behind,
        metric_rollup.c.series.not_like(_WARMUP),
    )
    cut = select(metric_rollup.c.series).where(gone, metric_rollup.c.size == LARGEST).distinct()
    names = list(conn.execute(cut).scalars())
    conn.execute(delete(metric_rollup).where(gone))
    roll_up(conn, job_id, dict.fromkeys(names, (behind, behind)))


def _roll(conn: Connection, job_id: int, names: Sequence[str], first: int, last: int) -> None:
    """Every stretch that holds a step from `first` to `last`, the short ones first."""
    for below, size in pairwise((1, *SIZES)):
        start, end = first // size * size, (last // size + 1) * size
        reach = {"job": job_id, "names": names, "start": start // below, "end": end // below}
        conn.execute(_STATEMENTS[size], reach)


_OF_ROWS = """
    SELECT series, step / {ratio} AS bucket, count(*) AS n, sum(value) AS total,
           min(value) AS low, max(value) AS high, min(step) AS first_step, max(step) AS last_step
    FROM metric
    WHERE job_id = :job AND series IN :names AND step >= :start AND step < :end
    GROUP BY series, step / {ratio}"""
_OF_STRETCHES = """
    SELECT series, bucket / {ratio} AS bucket, sum(n) AS n, sum(total) AS total,
           min(low) AS low, max(high) AS high,
           min(first_step) AS first_step, max(last_step) AS last_step
    FROM metric_rollup
    WHERE job_id = :job AND series IN :names AND size = {below}
      AND metric_rollup.bucket >= :start AND metric_rollup.bucket < :end
    GROUP BY series, metric_rollup.bucket / {ratio}"""
# First and last are looked up by the whole key: as joins, SQLite read all rows of the job for each
# stretch. The last condition is always true; without one SQLite takes ON CONFLICT for a join's.
_STATEMENT = """
INSERT INTO metric_rollup (job_id, series, size, bucket, n, total, low, high,
                           first_step, first, first_at, last_step, last, last_at)
SELECT :job, series, {size}, bucket, n, total, low, high,
       first_step,
       (SELECT m.value FROM metric AS m
        WHERE m.job_id = :job AND m.series = g.series AND m.step = g.first_step),
       (SELECT m.at FROM metric AS m
        WHERE m.job_id = :job AND m.series = g.series AND m.step = g.first_step),
       last_step,
       (SELECT m.value FROM metric AS m
        WHERE m.job_id = :job AND m.series = g.series AND m.step = g.last_step),
       (SELECT m.at FROM metric AS m
        WHERE m.job_id = :job AND m.series = g.series AND m.step = g.last_step)
FROM ({source}) AS g WHERE n > 0
ON CONFLICT (job_id, series, size, bucket) DO UPDATE SET
    n = excluded.n, total = excluded.total, low = excluded.low, high = excluded.high,
    first_step = excluded.first_step, first = excluded.first, first_at = excluded.first_at,
    last_step = excluded.last_step, last = excluded.last, last_at = excluded.last_at"""


def _statement(below: int, size: int) -> TextClause:
    """Written once: putting it together costs more than running it."""
    source = (_OF_ROWS if below == 1 else _OF_STRETCHES).format(ratio=size // below, below=below)
    written = text(_STATEMENT.format(size=size, source=source))
    return written.bindparams(bindparam("names", expanding=True))


_STATEMENTS = {size: _statement(below, size) for below, size in pairwise((1, *SIZES))}
