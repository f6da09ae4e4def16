"""The leaderboard: checkpoint × bench, shots and filter.

A column is one measure: bench, shots, filter, metric, k and runner on the same rows. Checkpoints
are in the order of one column's scores, or of when they were scored; never of several benches
together. Where a checkpoint was scored more than once on the same, the newest score is shown.
Writes nothing and knows no page.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    func,
    not_,
    or_,
    select,
)

from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.intervals import apart
from engine.contract.known import whole
from engine.contract.problems import nearest
from engine.contract.scores import BenchScore, Runner
from engine.contract.sources.benches import OWN
from worker.attempt.scores import model_of_step
from worker.db.connection import Database
from worker.db.tables import eval_score, job, job_tag
from worker.read.board import figures_in_result

MOST_COLUMNS = 8
MOST_LINES = 200
_A_READ = 1_000
"""Scores of an export that are read at once."""

_Name = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\x00]*$")]
MEASURE = r"[0-9a-f]{16}"
Sort = Literal["score", "truncated", "unparsed", "newest"]


class Conditions(BaseModel):
    """Which scores. All given conditions hold at once."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    bench: list[_Name] = Field([], max_length=MOST_COLUMNS)
    """Names of benches, side by side. `own` is the runs' own held-out rows, `own/NAME` those of a
    source of a mixture."""
    shots: int | None = Field(None, ge=0, le=2**31 - 1)
    filter: _Name | None = None
    """How the answer was read: `strict-match`, or a verifier's name."""
    runner: Runner | None = None
    """own, harness, or gate: a gate of a training run."""
    base: _Name | None = None
    """The model that training began from."""
    tag: _Name | None = None
    """Of the job that trained the checkpoint, or of the one that scored it."""
    run: int | None = Field(None, ge=1, le=2**31 - 1)
    """The job that trained the checkpoint."""
    best: bool = False
    """Of each base the checkpoint with the best score alone: in the column that orders a page, in
    each column of an export."""


class Wanted(Conditions):
    """One page of them. Without `bench` those scored last, without the runs' own rows where there
    are others.
    """

    column: str | None = Field(None, pattern=f"^{MEASURE}$")
    """The column that orders the checkpoints, and which they must have been scored in; the one with
    the most scores by default."""
    sort: Sort = "score"
    """By what of it, the highest first. `newest`: by when they were scored, in any column."""
    after: str | None = Field(None, max_length=400, pattern=r"^[^\x00]*$")
    """`next_after` of the page before."""
    limit: int = Field(50, ge=1, le=MOST_LINES)

    @model_validator(mode="after")
    def _one_order(self) -> Self:
        if self.best and self.sort != "score":
            raise ValueError(f"best is by score, and sort is {self.sort}; leave one of them out")
        return self


class Column(BaseModel):
    """What was measured, on which rows."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    measure: str
    """Its name in an address."""
    bench: str
    split: str
    shots: int
    filter: str
    metric: str
    k: int
    runner: Runner
    bench_hash: str | None
    """Of its rows and how they were asked; without one its scores are of one job."""
    job_id: int
    """The newest one that scored it."""
    scores: int
    other_rows: bool = False
    """Another column has the same name and other rows: the two do not compare."""


class Change(BaseModel):
    """A score against that of the run's step 0, in the same column: the same rows, not paired."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    before: float
    ref: str
    """The score before."""
    lift: float
    low: float
    high: float
    """95 % interval from the intervals of both, wider than that of the paired rows."""


class Cell(BaseModel):
    """One score."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    ref: str
    """JOB.KEY: its name in an address."""
    job_id: int
    """Which scored it."""
    measure: str
    n: int
    score: float
    low: float
    high: float
    truncated: float | None
    unparsed: float | None
    picked: bool
    """These rows picked the checkpoint: the score is too good."""
    config_hash: str | None
    """Of the job."""
    data_hash: str | None
    """Of the rows; where nobody hashed them, of the job's input files."""
    said: BenchScore
    """All of it."""
    change: Change | None = None


class Line(BaseModel):
    """One checkpoint."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    model: str
    """The same for every score of these weights."""
    checkpoint: str
    base: str
    run: int | None
    run_name: str | None
    step: int
    path: str | None
    chosen: bool
    """The step that its run's held-out rows picked."""
    published: bool
    """The step that its run published."""
    cells: dict[str, Cell]
    """By the column's measure."""


class Leaderboard(BaseModel):
    """One page."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    benches: list[str]
    """Every name there is, those scored last first."""
    columns: list[Column]
    """By name."""
    more_columns: int
    """Further columns that meet the conditions."""
    column: str | None
    """The one that orders the lines; null with `sort: newest`."""
    lines: list[Line]
    next_after: str | None
    """`after` of the next page; null on the last."""


class _Measure(NamedTuple):
    """A column before it is read."""

    bench: str
    measure: str
    scores: int
    newest: int
    """The newest job that scored it."""


def leaderboard(db: Database, wanted: Wanted) -> Leaderboard:
    """One page. Raises ConfigError for a bench, column or page that there is none of."""
    with db.read() as conn:
        return _page(conn, wanted)


def _page(conn: Connection, wanted: Wanted) -> Leaderboard:
    every = _measures(conn, Conditions())
    benches = list(dict.fromkeys(one.bench for one in every))
    _check_names(wanted.bench, benches)
    asked = wanted.bench or _usual(benches)
    known = every if not _conditions(wanted) else _measures(conn, wanted)
    found = [one for one in known if one.bench in asked]
    shown, column = _shown(found, wanted)
    columns = _columns(conn, shown)
    models, after = _models(conn, wanted, [one.measure for one in shown], column)
    return Leaderboard(
        benches=benches,
        columns=columns,
        more_columns=len(found) - len(shown),
        column=column,
        lines=_lines(conn, models, [one.measure for one in columns]),
        next_after=after,
    )


def _usual(benches: Sequence[str]) -> list[str]:
    """Every run has rows of its own; they are shown by themselves."""
    others = [one for one in benches if one != OWN and not one.startswith(f"{OWN}/")]
    return others or list(benches)


def _check_names(asked: Sequence[str], benches: Sequence[str]) -> None:
    unknown = [name for name in asked if name not in benches]
    if unknown:
        remedy = nearest(unknown[0], list(benches)) if benches else "score a checkpoint first"
        problem = "is no bench that was ever scored"
        raise ConfigError([ConfigProblem("bench", unknown[0], problem, remedy)])


def _measures(conn: Connection, wanted: Conditions) -> list[_Measure]:
    """Those with a score that is wanted, scored last first; along one index."""
    c = eval_score.c
    newest = func.max(c.job_id)
    found = select(c.bench, c.measure, func.count(), newest).group_by(c.bench, c.measure)
    found = found.where(*_conditions(wanted))
    rows = conn.execute(found.order_by(newest.desc(), c.bench, c.measure))
    return [_Measure(*row) for row in rows]


def _conditions(wanted: Conditions) -> list[ColumnElement[bool]]:
    c = eval_score.c
    equal = ("shots", "filter", "runner", "base", "run")
    given = {name: getattr(wanted, name) for name in equal if getattr(wanted, name) is not None}
    found = [c[name] == value for name, value in given.items()]
    if wanted.tag is not None:
        tagged = select(job_tag.c.job_id).where(job_tag.c.tag == wanted.tag)
        found.append(or_(c.job_id.in_(tagged), c.run.in_(tagged)))
    return found


def _shown(found: Sequence[_Measure], wanted: Wanted) -> tuple[list[_Measure], str | None]:
    """The columns of the page and the one that orders it, which is always among them."""
    known = [one.measure for one in found]
    if wanted.column is not None and wanted.column not in known:
        problem = "is no column with these conditions"
        remedy = f"use one of: {', '.join(known[:MOST_COLUMNS])}" if known else "widen them"
        raise ConfigError([ConfigProblem("column", wanted.column, problem, remedy)])
    shown = list(found[:MOST_COLUMNS])
    if wanted.column is not None and wanted.column not in known[:MOST_COLUMNS]:
        shown[-1] = found[known.index(wanted.column)]
    if wanted.sort == "newest" or not shown:
        return shown, None
    fullest = max(shown, key=lambda one: one.scores).measure
    return shown, wanted.column or fullest


def _columns(conn: Connection, shown: Sequence[_Measure]) -> list[Column]:
    c = eval_score.c
    names = ("measure", "bench", "split", "shots", "filter", "metric", "k", "runner", "bench_hash")
    found: list[Column] = []
    for one in shown:
        told = select(*(c[name] for name in names)).where(c.measure == one.measure).limit(1)
        row = conn.execute(told).one()
        found.append(Column(**row._asdict(), job_id=one.newest, scores=one.scores))
    called = [_called(one) for one in found]
    found = [one.model_copy(update={"other_rows": called.count(_called(one)) > 1}) for one in found]
    return sorted(found, key=lambda one: (*_called(one), -one.job_id))


def _called(column: Column) -> tuple[Any, ...]:
    """What people know it by: everything but its rows."""
    return (
        column.bench,
        column.shots,
        column.filter,
        column.metric,
        column.k,
        column.runner,
        column.split if column.runner == "gate" else "",
    )


# --- which checkpoints, in which order ---


def _models(
    conn: Connection, wanted: Wanted, measures: Sequence[str], column: str | None
) -> tuple[list[str], str | None]:
    """The checkpoints of a page, and where the next one begins."""
    if not measures:
        return [], None
    last = _after(wanted)
    if column is None:
        ordered = _by_time(wanted, measures, last)
    else:
        ordered = _by_column(wanted, column, last)
    rows = conn.execute(ordered.limit(wanted.limit + 1)).all()
    more = rows[wanted.limit - 1] if len(rows) > wanted.limit else None
    after = None if more is None else json.dumps([more.value, more.tie, more.model])
    return [row.model for row in rows[: wanted.limit]], after


def _after(wanted: Wanted) -> tuple[float, int, str] | None:
    if wanted.after is None:
        return None
    try:
        value, tie, model = json.loads(wanted.after)
        return float(value), int(tie), str(model)
    except (ValueError, TypeError):
        problem, remedy = "is not where a page ends", "use next_after as it was given"
        raise ConfigError([ConfigProblem("after", wanted.after, problem, remedy)]) from None


def _by_column(wanted: Wanted, column: str, last: tuple[float, int, str] | None) -> Select[Any]:
    """(value, tie, model) of one measure, highest value first, ties by the newest job; of each
    checkpoint the newest score.
    """
    of = "score" if wanted.sort == "newest" else wanted.sort
    value = func.coalesce(eval_score.c[of], -1.0) if of != "score" else eval_score.c.score
    c = eval_score.c
    found = select(value.label("value"), c.job_id.label("tie"), c.model).where(
        c.measure == column, _is_newest(), *_conditions(wanted)
    )
    if wanted.best:
        place = func.row_number().over(
            partition_by=c.base, order_by=(c.score.desc(), c.job_id.desc(), c.model.desc())
        )
        inner = found.add_columns(place.label("place")).subquery()
        found = select(inner.c.value, inner.c.tie, inner.c.model).where(inner.c.place == 1)
        return _behind(found, inner.c.value, inner.c.tie, inner.c.model, last)
    return _behind(found, value, c.job_id, c.model, last)


def _by_time(
    wanted: Wanted, measures: Sequence[str], last: tuple[float, int, str] | None
) -> Select[Any]:
    """The same of every checkpoint in any of the columns, by the newest job that scored it, ties
    by the step.
    """
    c = eval_score.c
    inner = (
        select(func.max(c.job_id).label("value"), func.max(c.step).label("tie"), c.model)
        .where(c.measure.in_(measures), *_conditions(wanted))
        .group_by(c.model)
        .subquery()
    )
    found = select(inner.c.value, inner.c.tie, inner.c.model)
    return _behind(found, inner.c.value, inner.c.tie, inner.c.model, last)


def _behind(
    found: Select[Any],
    value: ColumnElement[Any],
    tie: ColumnElement[Any],
    model: ColumnElement[Any],
    last: tuple[float, int, str] | None,
) -> Select[Any]:
    """In order, and behind the last line of the page before."""
    if last is not None:
        tied = or_(tie < last[1], and_(tie == last[1], model < last[2]))
        found = found.where(or_(value < last[0], and_(value == last[0], tied)))
    return found.order_by(value.desc(), tie.desc(), model.desc())


def _is_newest() -> ColumnElement[bool]:
    """No later score of the same checkpoint on the same."""
    one, later = eval_score.c, eval_score.alias("later").c
    after = or_(later.job_id > one.job_id, and_(later.job_id == one.job_id, later.key > one.key))
    again = select(1).where(later.model == one.model, later.measure == one.measure, after)
    return not_(again.correlate(eval_score).exists())


def scores_of_job(db: Database, job_id: int) -> Leaderboard | None:
    """What the checkpoints of a job scored, and what it scored itself, gates aside; the baseline
    first, step by step. None where there is no such score.
    """
    c = eval_score.c
    mine = (or_(c.run == job_id, c.job_id == job_id), c.runner != "gate")
    by_model = select(c.model, func.min(c.run), func.min(c.step)).where(*mine).group_by(c.model)
    newest = func.max(c.job_id)
    by_measure = select(c.bench, c.measure, func.count(), newest).where(*mine)
    with db.read() as conn:
        models = conn.execute(by_model).all()
        if not models:
            return None
        found = [_Measure(*row) for row in conn.execute(by_measure.group_by(c.bench, c.measure))]
        shown = sorted(found, key=lambda one: -one.newest)[:MOST_COLUMNS]
        columns = _columns(conn, shown)
        measures = [one.measure for one in columns]
        lines = _lines(conn, [row.model for row in models], measures)
    return Leaderboard(
        benches=sorted({one.bench for one in found}),
        columns=columns,
        more_columns=len(found) - len(shown),
        column=None,
        lines=sorted(lines, key=lambda one: (one.run is None, one.run or 0, one.step)),
        next_after=None,
    )


# --- what stands in the lines ---


def _lines(conn: Connection, models: Sequence[str], measures: Sequence[str]) -> list[Line]:
    rows = _newest_scores(conn, models, measures)
    told = {row.model: row for row in rows}
    starts = {
        row.model: model_of_step(row.run, 0)
        for row in told.values()
        if row.run is not None and row.step > 0
    }
    before = {
        (row.model, row.measure): row
        for row in _newest_scores(conn, set(starts.values()), measures)
    }
    jobs = _jobs(conn, {row.job_id for row in rows} | {row.run for row in rows if row.run})
    cells: dict[str, dict[str, Cell]] = {model: {} for model in models}
    for row in rows:
        base = before.get((starts.get(row.model, ""), row.measure))
        cells[row.model][row.measure] = _cell(row, jobs, base)
    return [_line(told[model], cells[model], jobs) for model in models if model in told]


def _newest_scores(
    conn: Connection, models: Collection[str], measures: Collection[str]
) -> list[Row[Any]]:
    c = eval_score.c
    found = select(eval_score).where(c.model.in_(models), c.measure.in_(measures), _is_newest())
    return list(conn.execute(found.order_by(c.job_id)).all()) if models else []


class _Job(NamedTuple):
    """What a line tells of a job."""

    name: str
    config_hash: str | None
    data_hash: str | None
    selected: int | None
    published: int | None


def _jobs(conn: Connection, ids: Collection[int]) -> dict[int, _Job]:
    figures = figures_in_result(conn.dialect.name, ("selected_step", "published_step"))
    columns = (job.c.id, job.c.name, job.c.config_hash, job.c.data_hash, figures)
    rows = conn.execute(select(*columns).where(job.c.id.in_(ids)))
    return {
        number: _Job(name, config, data, *map(whole, json.loads(steps)))
        for number, name, config, data, steps in rows
    }


def _line(row: Row[Any], cells: dict[str, Cell], jobs: Mapping[int, _Job]) -> Line:
    run = jobs.get(row.run)
    return Line(
        model=row.model,
        checkpoint=row.checkpoint,
        base=row.base,
        run=row.run,
        run_name=run.name if run else None,
        step=row.step,
        path=row.path,
        chosen=run is not None and run.selected == row.step,
        published=run is not None and run.published == row.step,
        cells=cells,
    )


def _cell(row: Row[Any], jobs: Mapping[int, _Job], before: Row[Any] | None) -> Cell:
    of = jobs[row.job_id]
    return Cell(
        ref=ref_of(row),
        job_id=row.job_id,
        measure=row.measure,
        n=row.n,
        score=row.score,
        low=row.low,
        high=row.high,
        truncated=row.truncated,
        unparsed=row.unparsed,
        picked=row.picked,
        config_hash=of.config_hash,
        data_hash=row.data_hash or of.data_hash,
        said=BenchScore.model_validate(row.body),
        change=None if before is None else _change(before, row),
    )


def ref_of(row: Row[Any]) -> str:
    """The name of a score in an address."""
    return f"{row.job_id}.{row.key}"


def _change(before: Row[Any], row: Row[Any]) -> Change:
    low, high = apart(before.score, (before.low, before.high), row.score, (row.low, row.high))
    return Change(
        before=before.score,
        ref=ref_of(before),
        lift=row.score - before.score,
        low=low,
        high=high,
    )


# --- all of it, for programs ---


class FlatScore(BaseModel):
    """A score with its checkpoint and column, as one row of a table."""

    line: Line
    cell: Cell


def every_score(db: Database, wanted: Conditions) -> Iterator[FlatScore]:
    """Every newest score that meets the conditions, in the order of jobs. Raises ConfigError for an
    unknown bench.
    """
    with db.read() as conn:
        benches = list(dict.fromkeys(one.bench for one in _measures(conn, Conditions())))
    _check_names(wanted.bench, benches)
    return _read_on(db, wanted)


def _read_on(db: Database, wanted: Conditions) -> Iterator[FlatScore]:
    last: tuple[int, str] = (0, "")
    while True:
        with db.read() as conn:
            rows = conn.execute(_flat(wanted, last)).all()
            found = _flattened(conn, rows)
        yield from found
        if len(rows) < _A_READ:
            return
        last = (rows[-1].job_id, rows[-1].key)


def _flat(wanted: Conditions, last: tuple[int, str]) -> Select[Any]:
    c = eval_score.c
    found = select(c.job_id, c.key, c.model, c.measure).where(_is_newest(), *_conditions(wanted))
    if wanted.bench:
        found = found.where(c.bench.in_(wanted.bench))
    if wanted.best:
        place = func.row_number().over(
            partition_by=(c.measure, c.base),
            order_by=(c.score.desc(), c.job_id.desc(), c.model.desc()),
        )
        ranked = found.add_columns(place.label("place")).subquery()
        found = select(ranked).where(ranked.c.place == 1)
    inner = found.subquery().c
    behind = or_(inner.job_id > last[0], and_(inner.job_id == last[0], inner.key > last[1]))
    return select(*inner).where(behind).order_by(inner.job_id, inner.key).limit(_A_READ)


def _flattened(conn: Connection, rows: Sequence[Row[Any]]) -> list[FlatScore]:
    models = list(dict.fromkeys(row.model for row in rows))
    measures = list(dict.fromkeys(row.measure for row in rows))
    lines = {line.model: line for line in _lines(conn, models, measures)}
    return [
        FlatScore(line=lines[row.model], cell=lines[row.model].cells[row.measure]) for row in rows
    ]
