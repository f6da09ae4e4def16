"""Every run with what its table may show, read in a few statements whatever their number.

Of a result only the figures of the table are read, and of a pool its rollups: both may be large.
Knows no column and no filter.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import Connection, Row, Select, Text, cast, func, select

from engine.contract.embedded import is_demo
from engine.contract.intervals import apart
from engine.contract.known import pair, real, whole
from engine.contract.registry import kinds
from worker.budget.ledger import USED
from worker.db.connection import Database
from worker.db.metrics import LARGEST, SIZES
from worker.db.tables import attempt, eval_score, job, job_tag, ledger, metric, metric_rollup
from worker.queue.states import State
from worker.read.benches import OWN, BenchLine, benches_of
from worker.read.board import figures_in_result

HELDOUT, POOL = "heldout/select", "pool/score"
FIGURES = (
    *("phase", "step", "max_steps", "steps", "seconds", "selected_step", "peak_gb"),
    *("heldout_before", "heldout_after", "lift", "lift_ci95", "verdict", "verdict_reason"),
    *("benches", "report_n", "pool_score", "last_heldout"),
)
"""Of a result, what the table shows."""
_KEPT = 4_000
"""Configs and figures that are kept as they were read: they are the same at the next look."""

Points = tuple[tuple[int, float], ...]
Tree = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """A score before and after, as shares of one, on the same rows."""

    lift: float
    low: float | None = None
    high: float | None = None
    """95 % interval of `lift`."""
    before: float | None = None
    after: float | None = None
    n: int | None = None

    @property
    def half(self) -> float | None:
        """Half the width of the interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Run:
    """One job. Times are Unix seconds."""

    id: int
    kind: str
    name: str
    state: State
    created_at: float
    finished_at: float | None
    heartbeat_at: float | None
    cause: str | None
    error: str | None
    defer_detail: str | None
    note: str | None
    archived_at: float | None
    clone_of: int | None
    sweep_id: int | None
    group_hash: str | None
    settings: Tree
    """Every setting by its dotted name."""
    figures: Tree
    demo: bool
    base: str | None
    """The model's name, without its folder."""
    change: Change | None
    """On the rows that decide."""
    benches: Mapping[str, Change]
    tags: tuple[str, ...]
    seconds: float | None
    """For which it held the lane."""
    usd: float | None
    gates: Points
    """(step, held-out score) of each gate."""
    pool: Points
    metrics: Mapping[str, float]
    """The last value of each series that was asked for."""

    @property
    def verdict(self) -> str | None:
        """In a word; a gain of unknown size is none."""
        said = self.figures.get("verdict")
        known = isinstance(said, str) and bool(said) and self.state is State.SUCCEEDED
        return None if not known or (said == "gain" and self.change is None) else str(said)


def read_runs(db: Database, *, archived: bool = False, series: Sequence[str] = ()) -> list[Run]:
    """All runs, newest first; `archived`: those that were put away instead. `series`: of which the
    last value is wanted.
    """
    with db.read() as conn:
        rows = conn.execute(_rows(conn.dialect.name, archived=archived)).all()
        if not rows:
            return []
        tags = _tags(conn)
        held = _numbers(conn, _HELD)
        usd = _numbers(conn, _USD)
        gates = _points(conn, _GATES)
        pool = _points(conn, _POOL)
        scores = _scores(conn)
        measured = _last_values(conn, series)
    return [
        _run(
            row,
            tags=tuple(tags.get(row.id, ())),
            held=held.get(row.id),
            usd=usd.get(row.id),
            gates=gates.get(row.id, ()),
            pool=pool.get(row.id, ()),
            scores=scores.get(row.id, {}),
            metrics=measured.get(row.id, {}),
        )
        for row in rows
    ]


def series_names(db: Database) -> list[str]:
    """The names of all series that any run has."""
    with db.read() as conn:
        found = conn.execute(
            select(metric_rollup.c.series).where(metric_rollup.c.size == LARGEST).distinct()
        )
        return sorted(found.scalars())


@cache
def _rows(dialect: str, *, archived: bool) -> Select[Any]:
    put_away = job.c.archived_at.is_not(None) if archived else job.c.archived_at.is_(None)
    return (
        select(
            *(job.c[name] for name in _PLAIN),
            cast(job.c.config, Text).label("config"),
            figures_in_result(dialect, FIGURES).label("figures"),
        )
        .where(job.c.deleted_at.is_(None), put_away)
        .order_by(job.c.id.desc())
    )


_PLAIN = (
    *("id", "kind", "name", "state", "created_at", "finished_at", "heartbeat_at", "cause", "error"),
    *("defer_detail", "note", "archived_at", "clone_of", "sweep_id", "group_hash"),
)
_HELD = select(attempt.c.job_id, func.sum(attempt.c.seconds)).group_by(attempt.c.job_id)
_USD = (
    select(ledger.c.job_id, func.sum(ledger.c.usd))
    .where(ledger.c.entry.in_(USED), ledger.c.job_id.is_not(None))
    .group_by(ledger.c.job_id)
)
_GATES = (
    select(metric.c.job_id, metric.c.step, metric.c.value)
    .where(metric.c.series == HELDOUT)
    .order_by(metric.c.job_id, metric.c.step)
)
_POOL = (
    select(
        metric_rollup.c.job_id,
        metric_rollup.c.last_step,
        metric_rollup.c.total / metric_rollup.c.n,
    )
    .where(metric_rollup.c.series == POOL, metric_rollup.c.size == SIZES[0])
    .order_by(metric_rollup.c.job_id, metric_rollup.c.bucket)
)
_BENCHED = (
    select(
        *(eval_score.c[name] for name in ("run", "step", "bench", "filter", "measure", "n")),
        *(eval_score.c[name] for name in ("score", "low", "high")),
    )
    .where(
        eval_score.c.run.is_not(None),
        eval_score.c.bench != OWN,
        eval_score.c.runner != "gate",
    )
    .order_by(eval_score.c.job_id)
)


def _tags(conn: Connection) -> Mapping[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    for job_id, tag in conn.execute(
        select(job_tag.c.job_id, job_tag.c.tag).order_by(job_tag.c.tag)
    ):
        found[job_id].append(tag)
    return found


def _numbers(conn: Connection, statement: Select[Any]) -> Mapping[int, float]:
    return {job_id: float(value) for job_id, value in conn.execute(statement)}


def _points(conn: Connection, statement: Select[Any]) -> Mapping[int, Points]:
    found: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for job_id, step, value in conn.execute(statement).all():
        found[job_id].append((step, value))
    return {job_id: tuple(points) for job_id, points in found.items()}


def _last_values(conn: Connection, series: Sequence[str]) -> Mapping[int, Mapping[str, float]]:
    found: dict[int, dict[str, float]] = defaultdict(dict)
    if series:
        of = metric_rollup.c
        rows = (
            select(of.job_id, of.series, of.last)
            .where(of.series.in_(series), of.size == LARGEST)
            .order_by(of.bucket)
        )
        for job_id, name, value in conn.execute(rows):
            found[job_id][name] = value
    return found


_Scores = Mapping[str, Mapping[int, Row[Any]]]
"""Bench → step of the run → the newest score."""


def _scores(conn: Connection) -> Mapping[int, _Scores]:
    rows = conn.execute(_BENCHED).all()
    filters: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        filters[row.bench].add(row.filter)
    found: dict[int, dict[str, dict[int, Row[Any]]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        name = row.bench if len(filters[row.bench]) == 1 else f"{row.bench}/{row.filter}"
        found[row.run][name][row.step] = row
    return found


def _run(row: Row[Any], *, held: float | None, scores: _Scores, **rest: Any) -> Run:
    settings, demo = _settings(row.config)
    figures = _figures(row.figures)
    kind = kinds().get(row.kind)
    named = settings.get(kind.model) if kind and kind.model else None
    lines = _lines(row.figures)
    plain = {name: getattr(row, name) for name in _PLAIN if name != "state"}
    return Run(
        **plain,
        state=State(row.state),
        settings=settings,
        figures=figures,
        demo=demo,
        base=model_name(named),
        change=_decided(figures),
        benches={**_own_benches(lines), **_scored(scores, whole(figures.get("selected_step")))},
        seconds=held if held is not None else real(figures.get("seconds")),
        **rest,
    )


@lru_cache(maxsize=_KEPT)
def _settings(text: str) -> tuple[Tree, bool]:
    """Every setting by its dotted name, and whether they are a demonstration's."""
    config = json.loads(text)
    config = config if isinstance(config, dict) else {}
    return dict(_flat(config)), is_demo(config)


def _flat(tree: Tree, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


@lru_cache(maxsize=_KEPT)
def _figures(text: str) -> Tree:
    return dict(zip(FIGURES, json.loads(text), strict=True))


@lru_cache(maxsize=_KEPT)
def _lines(text: str) -> tuple[BenchLine, ...]:
    return tuple(benches_of(_figures(text), {}))


def model_name(value: Any) -> str | None:
    """`Qwen3-4B` of `/models/Qwen3-4B` and of `Qwen/Qwen3-4B`; of a run's checkpoint all of it."""
    if not isinstance(value, str) or not value:
        return None
    path = value.rstrip("/")
    return path if path.startswith("runs/") else path.rpartition("/")[2] or value


def _decided(figures: Tree) -> Change | None:
    lift = real(figures.get("lift"))
    if lift is None:
        return None
    low, high = pair(figures.get("lift_ci95"))
    before, after = (real(figures.get(f"heldout_{when}")) for when in ("before", "after"))
    return Change(lift, low, high, before, after, whole(figures.get("report_n")))


def _own_benches(lines: Sequence[BenchLine]) -> dict[str, Change]:
    """What the run itself was judged on beside its own rows."""
    return {
        line.name: Change(line.lift, line.low, line.high, line.before, line.after, line.n)
        for line in lines
        if line.kind == "bench" and line.lift is not None
    }


def _scored(scores: _Scores, picked: int | None) -> dict[str, Change]:
    """What evaluations of its checkpoints found: the picked step against step 0, unpaired."""
    found = {}
    for bench, steps in scores.items():
        after, before = steps.get(-1 if picked is None else picked), steps.get(0)
        if after is None or before is None or after.measure != before.measure or not picked:
            continue
        low, high = apart(
            before.score, (before.low, before.high), after.score, (after.low, after.high)
        )
        found[bench] = Change(
            after.score - before.score, low, high, before.score, after.score, after.n
        )
    return found
