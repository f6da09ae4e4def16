"""Some runs held against the first of them: scores, differences, cautions, and row by row.

Writes nothing; knows no page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from engine.contract.errors import NightlaneError
from engine.contract.intervals import evidence, wilson
from worker.db.connection import Database
from worker.queue.states import State
from worker.read import jobs
from worker.read.benches import benches_of, parts
from worker.read.comparison.config_diff import SettingRow, settings_of
from worker.read.comparison.difference import (
    Difference,
    difference,
    judged,
    pooled_f1,
    questions_of,
)
from worker.read.comparison.heldout import Heldout, gates_of, picked_step, read_gate, same_question
from worker.read.jobs import JobView
from worker.read.samples.files import Split
from worker.read.samples.rows import Sample

MOST_JOBS = 40
"""Of more runs the rows would not fit the shelf."""
FEWEST_JOBS = 2


class CompareError(NightlaneError):
    """Jobs that cannot be compared: which, and what to do."""

    exit_code = 2
    """Of the command line: a wrong request, like a wrong config."""


class Score(BaseModel):
    """One gate of a run over its own rows."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    step: int
    score: float
    low: float | None
    high: float | None
    """95 % interval of a success rate; null for an F1."""
    n: int


class Side(BaseModel):
    """One of the runs."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    job_id: int
    name: str
    kind: str
    state: State
    base: Score | None
    """At step 0."""
    picked: Score | None
    """At the step that held-out picked."""
    why_not: str | None
    """Why it cannot be compared; null when it can."""


class Against(BaseModel):
    """A run against the first one."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    job_id: int
    at_base: Difference | None
    """Before training: runs that began apart were not moved apart by it."""
    picked: Difference | None
    by_source: dict[str, Difference] = {}
    """`picked` of each source of a mixture that both held out; `picked` counts every row alike."""


class Comparison(BaseModel):
    """Everything but the rows."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    split: Split | None
    """Which held-out rows: report where all have them, else select; null where neither."""
    measure: str | None
    """success or f1."""
    sides: list[Side]
    against: list[Against]
    cautions: list[str]
    settings: list[SettingRow]


class Which(StrEnum):
    """Rows by who solved them."""

    GAINED = "gained"
    """Only the second run."""
    LOST = "lost"
    """Only the first run."""
    NEITHER = "neither"
    BOTH = "both"


class RowPair(BaseModel):
    """One held-out row, answered by two runs."""

    id: str
    first: Sample
    second: Sample


class RowPage(BaseModel):
    """Rows by who solved them, in the order of the first run's file."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    which: Which
    rows: list[RowPair]
    total: int
    next_after: int | None
    """`after` of the next page; null on the last."""


class _Gates(NamedTuple):
    """What one job brings to the comparison."""

    job: JobView
    base: Heldout | None
    picked: Heldout | None


def compare_jobs(db: Database, job_ids: Sequence[int]) -> Comparison:
    """Raises CompareError for too few, too many or a job named twice, and JobNotFoundError."""
    _check(job_ids)
    compared = [jobs.get_job(db, job_id) for job_id in job_ids]
    split = _common_split(compared)
    found = [_gates(job, split) for job in compared]
    first, *others = found
    settings = settings_of([job.config for job in compared])
    return Comparison(
        split=split,
        measure=first.picked.measure if first.picked else None,
        sides=[_side(one, split) for one in found],
        against=_against(first, others),
        cautions=list(_cautions(found, split, settings)),
        settings=settings,
    )


def find_rows(
    db: Database, a: int, b: int, which: Which, *, after: int = -1, limit: int = 10
) -> RowPage:
    """Rows of two runs by who solved them. Raises CompareError, JobNotFoundError."""
    _check([a, b])
    compared = [jobs.get_job(db, job_id) for job_id in (a, b)]
    split = _common_split(compared)
    first, second = (_gates(job, split).picked for job in compared)
    if first is None or second is None:
        return RowPage(which=which, rows=[], total=0, next_after=None)
    places = [
        (row.place, name)
        for name, row in first.rows.items()
        if name in second.rows
        and same_question(row.outcome, second.rows[name].outcome)
        and _which(row.outcome.success, second.rows[name].outcome.success) is which
    ]
    behind = [one for one in sorted(places) if one[0] > after]
    pairs = [
        (name, first.file.sample(place), second.file.sample(second.rows[name].place))
        for place, name in behind[:limit]
    ]
    return RowPage(
        which=which,
        rows=[RowPair(id=name, first=x, second=y) for name, x, y in pairs if x and y],
        total=len(places),
        next_after=behind[limit - 1][0] if len(behind) > limit else None,
    )


def _check(job_ids: Sequence[int]) -> None:
    if len(job_ids) < FEWEST_JOBS:
        raise CompareError("a comparison needs two jobs; name another one")
    if len(job_ids) > MOST_JOBS:
        raise CompareError(f"{len(job_ids)} jobs are too many to compare; name at most {MOST_JOBS}")
    twice = sorted({one for one in job_ids if job_ids.count(one) > 1})
    if twice:
        raise CompareError(f"job {twice[0]} is named twice; name another one")


def _common_split(compared: Sequence[JobView]) -> Split | None:
    """Report rows picked nothing, so they are asked first."""
    having = [gates_of(job) for job in compared]
    scored = [one for one in having if one]
    for split in (Split.REPORT, Split.SELECT):
        if scored and all(split in one for one in scored):
            return split
    return None


def _gates(job: JobView, split: Split | None) -> _Gates:
    files = gates_of(job).get(split, {}) if split else {}
    if not split or not files:
        return _Gates(job, None, None)
    picked = picked_step(job, files)
    return _Gates(job, _gate(files, split, 0), _gate(files, split, picked))


def _gate(files: dict[int, Path], split: Split, step: int) -> Heldout | None:
    return read_gate(files[step], split, step) if step in files else None


def _side(one: _Gates, split: Split | None) -> Side:
    return Side(
        job_id=one.job.id,
        name=one.job.name,
        kind=one.job.kind,
        state=one.job.state,
        base=_score(one.base),
        picked=_score(one.picked),
        why_not=None if one.picked else _why_not(one.job, split),
    )


def _why_not(job: JobView, split: Split | None) -> str:
    if job.pruned_at is not None:
        return "its rows were thrown away when it was pruned"
    if job.state is State.QUEUED and not job.attempt:
        return "it has not run yet"
    if gates_of(job) and split is None:
        return "the jobs have no split in common"
    return "it has no held-out rows: no gate was reached" if split else "no held-out rows yet"


def _score(found: Heldout | None) -> Score | None:
    if found is None:
        return None
    outcomes = [row.outcome for row in found.rows.values()]
    n = len(outcomes)
    if found.measure == "f1":
        f1 = pooled_f1([one.hits or (0, 0, 0) for one in outcomes])
        return Score(step=found.step, score=f1, low=None, high=None, n=n)
    solved = sum(bool(one.success) for one in outcomes)
    rows = evidence(questions_of(list(found.rows.values())))
    low, high = wilson(solved / n * rows, rows)
    return Score(step=found.step, score=solved / n, low=low, high=high, n=n)


def _against(first: _Gates, others: Sequence[_Gates]) -> list[Against]:
    picked = _judged([_difference(first.picked, one.picked) for one in others])
    based = _judged([_difference(first.base, one.base) for one in others])
    return [
        Against(job_id=one.job.id, at_base=base, picked=last, by_source=_by_source(first, one))
        for one, base, last in zip(others, based, picked, strict=True)
    ]


def _by_source(first: _Gates, other: _Gates) -> dict[str, Difference]:
    """Each corrected for the others."""
    mine, theirs = (_sources(one) for one in (first, other))
    shared = [name for name in mine if name in theirs]
    found = [_difference(mine[name], theirs[name]) for name in shared]
    pairs = zip(shared, _judged(found), strict=True)
    return {name: one for name, one in pairs if one is not None}


def _sources(one: _Gates) -> dict[str, Heldout]:
    """The picked gate by source of its mixture, where those rows decide."""
    gate = one.picked
    if gate is None:
        return {}
    names = [x.name for x in parts(benches_of({}, one.job.config)) if x.split == Split.SELECT]
    rows = {
        name: {id_: row for id_, row in gate.rows.items() if id_.startswith(f"{name}/")}
        for name in names
    }
    return {name: gate._replace(rows=found) for name, found in rows.items() if found}


def _difference(a: Heldout | None, b: Heldout | None) -> Difference | None:
    if a is None or b is None or a.measure != b.measure:
        return None
    return difference(a, b)


def _judged(found: Sequence[Difference | None]) -> list[Difference | None]:
    """The known ones, corrected for one another."""
    known = iter(judged([one for one in found if one is not None]))
    return [None if one is None else next(known) for one in found]


def _which(first: bool | None, second: bool | None) -> Which:
    if first:
        return Which.BOTH if second else Which.LOST
    return Which.GAINED if second else Which.NEITHER


def _cautions(
    found: Sequence[_Gates], split: Split | None, settings: Sequence[SettingRow]
) -> Iterator[str]:
    """What keeps the numbers from meaning what they seem to."""
    compared = [one.job for one in found]
    if len({job.kind for job in compared}) > 1:
        yield "The jobs are of different kinds: what one counts as a success the other does not."
    if split is Split.SELECT:
        yield (
            "Compared on the select rows, for not every run has scored its report rows: the same "
            "rows picked the checkpoints, so each score is a little too good."
        )
    yield from unlike_measures(settings)
    real = any(not job.demo for job in compared)
    for one in found:
        if one.job.demo and real:
            yield f"Job {one.job.id} is a demo: its model or its data are embedded ones."
        if not one.job.state.final:
            yield f"Job {one.job.id} is {one.job.state}: its numbers may still change."
        for gate in (one.base, one.picked):
            if gate is not None and gate.read_share < 1:
                yield (
                    f"Only {gate.read_share:.0%} of job {one.job.id}'s rows of step {gate.step} "
                    "have been read so far; ask again to read on."
                )


def unlike_measures(settings: Sequence[SettingRow]) -> Iterator[str]:
    """Settings that change what a held-out score means, where they differ."""
    for row in settings:
        if row.name in _MUST_BE_SAME and row.differs:
            values = " and ".join(dict.fromkeys(map(str, row.values)))
            yield f"{_MUST_BE_SAME[row.name]}: {values}."


_MUST_BE_SAME = {
    "verifier": "The runs were judged by different verifiers",
    "success_threshold": "The runs count different rewards as a success",
    "heldout_temp": "Held-out was sampled at different temperatures",
    "custom.extra.rollout_matching.iou_gate": "A box counts from different overlaps on (IoU)",
}
