"""Two seed groups against each other: is one config better than another, whatever the seed?

Tested between runs: n is the number of runs of each group, and what is held against the difference
is how far runs of one config end from each other (Welch's t-test, corrected by Holm for the benches
looked at). Rows only say whether both groups answered the same ones. Writes nothing; knows no page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from engine.contract.between_runs import FEWEST_RUNS, Spread, Welch, spread, welch
from worker.db.connection import Database
from worker.read import jobs
from worker.read.comparison.compare import CompareError, unlike_measures
from worker.read.comparison.config_diff import SettingRow, settings_of
from worker.read.comparison.difference import ALPHA, holm
from worker.read.comparison.heldout import Heldout, read_gate, same_question
from worker.read.groups import Group, GroupBench, group_of
from worker.read.jobs import JobView
from worker.read.samples.files import rollout_files

Word = Literal[
    "better", "worse", "no difference proven", "too few runs", "no spread", "not the same rows"
]


class MeanDifference(BaseModel):
    """Of the means of two groups, the second from the first; shares of one."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    low: float
    high: float
    """95 % interval."""
    p_value: float
    """Welch's t-test, two-sided, between runs."""
    p_holm: float
    """The same, corrected for every bench that both groups have."""
    shows: float
    """The smallest difference that so many runs with this spread find with 80 % power."""


class BenchOfTwo(BaseModel):
    """Both groups on one bench."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    a: GroupBench
    b: GroupBench
    lift: float
    """Mean score of `b` without that of `a`, after training."""
    tested: MeanDifference | None
    """Null where nothing can be tested: `word` says why."""
    word: Word


class GroupComparison(BaseModel):
    """Two groups; `b` is held against `a`."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    a: Group
    b: Group
    benches: list[BenchOfTwo]
    """The one that decides first."""
    cautions: list[str]
    settings: list[SettingRow]
    """Those that differ, but for the seed."""


class _Side(NamedTuple):
    group: Group
    job: JobView
    """The newest run that counts, else the one that was asked for: it stands for the others."""


def compare_groups(db: Database, a: int, b: int) -> GroupComparison:
    """Each group is named by any of its runs. Raises CompareError, JobNotFoundError."""
    first, second = _side(db, a), _side(db, b)
    if b in {run.job_id for run in first.group.runs}:
        raise CompareError(
            f"jobs {a} and {b} are of one group: they differ in "
            f"{first.group.seed_setting} alone; name a run of another config"
        )
    if first.group.kind != second.group.kind:
        raise CompareError(
            f"job {a} is of kind {first.group.kind} and job {b} of kind {second.group.kind}: they "
            "measure different things; name two groups of one kind"
        )
    settings = [
        row
        for row in settings_of([first.job.config, second.job.config])
        if row.differs and row.name != first.group.seed_setting
    ]
    pairs = _pairs(first.group, second.group)
    same = [_same_rows(first.job, second.job, one.split, other.split) for one, other in pairs]
    return GroupComparison(
        a=first.group,
        b=second.group,
        benches=_judged(pairs, same),
        cautions=list(_cautions(first, second, pairs, same, settings)),
        settings=settings,
    )


def _side(db: Database, job_id: int) -> _Side:
    group = group_of(db, job_id)
    if group is None:
        raise CompareError(
            f"job {job_id} is in no seed group: its kind has no seed, or it was queued by an older "
            "version; name another one"
        )
    stands_for = max((run.job_id for run in group.counted), default=job_id)
    return _Side(group, jobs.get_job(db, stands_for))


def _pairs(a: Group, b: Group) -> list[tuple[GroupBench, GroupBench]]:
    """The benches of both; those that decide belong together only under one name."""
    theirs = {bench.name: bench for bench in b.benches}
    return [(bench, theirs[bench.name]) for bench in a.benches if bench.name in theirs]


def _judged(
    pairs: Sequence[tuple[GroupBench, GroupBench]], same: Sequence[bool | None]
) -> list[BenchOfTwo]:
    spreads = [(spread(one.afters), spread(other.afters)) for one, other in pairs]
    tests = [
        None if rows is False else welch(*two) for two, rows in zip(spreads, same, strict=True)
    ]
    corrected = holm([None if one is None else one.p_value for one in tests])
    return [
        BenchOfTwo(
            a=a,
            b=b,
            lift=two[1].mean - two[0].mean,
            tested=_tested(test, p),
            word="not the same rows" if rows is False else _word(two, test, p),
        )
        for (a, b), two, rows, test, p in zip(pairs, spreads, same, tests, corrected, strict=True)
    ]


def _tested(test: Welch | None, p_holm: float | None) -> MeanDifference | None:
    if test is None or p_holm is None:
        return None
    low, high = test.ci95
    return MeanDifference(low=low, high=high, p_value=test.p_value, p_holm=p_holm, shows=test.shows)


def _word(two: tuple[Spread, Spread], test: Welch | None, p_holm: float | None) -> Word:
    if min(one.n for one in two) < FEWEST_RUNS:
        return "too few runs"
    if test is None or p_holm is None:
        return "no spread"
    if p_holm >= ALPHA:
        return "no difference proven"
    return "better" if test.difference > 0 else "worse"


def _same_rows(a: JobView, b: JobView, split_a: str, split_b: str) -> bool | None:
    """Whether two runs answered the same held-out rows; None where that cannot be told any more."""
    first, second = _rows(a, split_a), _rows(b, split_b)
    if first is None or second is None or min(first.read_share, second.read_share) < 1:
        return None
    return first.rows.keys() == second.rows.keys() and all(
        same_question(row.outcome, second.rows[name].outcome) for name, row in first.rows.items()
    )


def _rows(job: JobView, split: str) -> Heldout | None:
    """Of any gate: all of a run's gates ask the same."""
    files = rollout_files(job.run_dir).get(split)
    if not files:
        return None
    step = max(files)
    return read_gate(files[step], split, step)


def _cautions(
    a: _Side,
    b: _Side,
    pairs: Sequence[tuple[GroupBench, GroupBench]],
    same: Sequence[bool | None],
    settings: Sequence[SettingRow],
) -> Iterator[str]:
    """What keeps the numbers from meaning what they seem to."""
    if not pairs:
        yield "The groups have no held-out rows in common on which both have a score yet."
    yield from unlike_measures(settings)
    unchecked = [one.label for (one, _), rows in zip(pairs, same, strict=True) if rows is None]
    if unchecked:
        yield (
            f"Whether both groups answered the same rows ({', '.join(unchecked)}) cannot be told: "
            "their completions are not there, or too many to read at once."
        )
    for side in (a, b):
        yield from without_score(side.group)
    if a.job.demo != b.job.demo:
        yield "One of the groups is a demo: its model or its data are embedded ones."
    for one, other in pairs[:1]:
        if _apart(one, other):
            yield (
                f"The groups began apart: {one.before.mean:.1%} and {other.before.mean:.1%} on "
                "average at step 0, so not all of the difference is the training's."
            )


def _apart(a: GroupBench, b: GroupBench) -> bool:
    """Before training, by more than the spread of both explains."""
    gap = abs(b.before.mean - a.before.mean)
    return gap > 2 * max(one.before.sd or 0.0 for one in (a, b)) and gap > 1e-9


def without_score(group: Group) -> Iterator[str]:
    """A sentence for each run of a seed that is missing in the group's numbers."""
    for run in group.unscored:
        who = f"Job {run.job_id} (seed {run.seed})"
        if run.state.final:
            rest = f"ended {run.state} without a score: a mean over the others may be too good."
        else:
            rest = f"is {run.state}: its score is not in yet."
        yield f"{who} {rest}"
