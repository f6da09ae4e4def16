"""Seed groups: runs of one config that differ in their seed alone, and how far their scores spread.

A run's group is found by a hash that stands in its row (`worker.queue.tried`), whether a sweep or a
person queued it. A seed counts once, by its newest run with a score: the same seed again is no
other draw. Knows no sentence and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection, RowMapping, bindparam, func, select, text

from engine.contract.between_runs import FEWEST_RUNS, Spread, spread
from engine.contract.errors import ConfigError
from engine.contract.known import real, setting_of, whole
from engine.contract.registry import get_kind
from worker.db.connection import Database
from worker.db.tables import GROUPED, job
from worker.queue.lookup import JobNotFoundError
from worker.queue.states import State
from worker.read.benches import OWN, BenchLine, benches_of

MOST_RUNS = 100
"""Of a group the newest ones are read."""


class GroupRun(BaseModel):
    """One run of a group. Scores are shares of one."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    job_id: int
    name: str
    seed: int
    state: State
    finished_at: float | None
    before: float | None
    """By step 0, on the rows that decide."""
    after: float | None
    """By the picked step, on the same rows."""
    counts: bool
    """Its scores stand in the group's numbers."""


class Between(BaseModel):
    """The scores of some runs, one a run."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    n: int
    """Runs."""
    mean: float
    low: float | None
    high: float | None
    """95 % interval of the mean (Student's t over the runs); null of one run, or without spread."""
    lowest: float
    highest: float
    sd: float | None
    """Standard deviation between runs; null of one run."""

    @classmethod
    def of(cls, found: Spread) -> Between:
        """As the contract reckons it."""
        low, high = found.ci95 or (None, None)
        return cls(
            n=found.n,
            mean=found.mean,
            low=low,
            high=high,
            lowest=found.lowest,
            highest=found.highest,
            sd=found.sd,
        )


class GroupBench(BaseModel):
    """What the runs of a group came to on the same rows."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    name: str
    label: str
    decides: bool
    split: str
    """The name under which each run's completions are found."""
    before: Between
    after: Between
    lift: Between
    afters: list[float]
    """The scores behind `after`, in the order of the runs that count."""


class Group(BaseModel):
    """Runs that differ in their seed alone and hold out the same rows."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    kind: str
    seed_setting: str
    """Where the seed stands in the config, by dotted name."""
    runs: list[GroupRun]
    """By seed, then by number."""
    benches: list[GroupBench]
    """The one that decides first; empty while no run has a score."""

    @property
    def seeds(self) -> list[int]:
        """Each once, in order."""
        return sorted({run.seed for run in self.runs})

    @property
    def counted(self) -> list[GroupRun]:
        """The runs behind the numbers."""
        return [run for run in self.runs if run.counts]

    @property
    def unscored(self) -> list[GroupRun]:
        """Runs of seeds that are missing in the numbers."""
        scored = {run.seed for run in self.counted}
        return [run for run in self.runs if run.seed not in scored]

    @property
    def again(self) -> list[GroupRun]:
        """Runs whose seed counts by another one."""
        scored = {run.seed for run in self.counted}
        return [run for run in self.runs if run.seed in scored and not run.counts]

    @property
    def over(self) -> bool:
        """Whether no run of it waits or goes on."""
        return all(run.state.final for run in self.runs)


class _Run(NamedTuple):
    row: RowMapping
    seed: int
    lines: Sequence[BenchLine]
    """With both scores, the one that decides first."""

    @property
    def result(self) -> Mapping[str, Any]:
        found = self.row["result"]
        return found if isinstance(found, dict) else {}

    @property
    def split(self) -> str | None:
        found = setting_of(self.result, "upstream.corpus.split")
        return found if isinstance(found, str) else None


def group_of(db: Database, job_id: int) -> Group | None:
    """The group of a run, which may be its only one; None where its kind has no seed, or it was
    queued by a version without groups. Raises JobNotFoundError.
    """
    with db.read() as conn:
        row = conn.execute(_HASH, {"ids": [job_id]}).one_or_none()
        if row is None:
            raise JobNotFoundError(job_id)
        return None if row.group_hash is None else _read(conn, row.group_hash, job_id)


def groups_among(db: Database, job_ids: Sequence[int]) -> list[Group]:
    """The groups of several seeds to which some jobs belong, each once, in the order of the jobs.

    A group has its other runs too, whoever queued them.
    """
    with db.read() as conn:
        rows = {row.id: row.group_hash for row in conn.execute(_HASH, {"ids": list(job_ids)})}
        hashes = dict.fromkeys(rows.get(job_id) for job_id in job_ids)
        known = [one for one in hashes if one is not None]
        several = set(conn.execute(_SEVERAL, {"hashes": known}).scalars())
        found = [_read(conn, one) for one in known if one in several]
    return [group for group in found if group is not None and len(group.seeds) >= FEWEST_RUNS]


_HASH = select(job.c.id, job.c.group_hash).where(job.c.id.in_(bindparam("ids", expanding=True)))
_SEVERAL = (
    select(job.c.group_hash)
    .where(text(GROUPED), job.c.group_hash.in_(bindparam("hashes", expanding=True)))
    .group_by(job.c.group_hash)
    .having(func.count() >= FEWEST_RUNS)
)
MEMBERS = (
    select(
        job.c.id, job.c.name, job.c.kind, job.c.state, job.c.finished_at, job.c.config, job.c.result
    )
    .where(text(GROUPED), job.c.group_hash == bindparam("wanted"))
    .order_by(job.c.id.desc())
    .limit(MOST_RUNS)
)
"""The newest runs of a group."""


def _read(conn: Connection, group_hash: str, asked: int | None = None) -> Group | None:
    rows = conn.execute(MEMBERS, {"wanted": group_hash}).mappings().all()
    try:
        setting = get_kind(rows[0]["kind"]).seed
    except ConfigError:  # a kind that is gone
        return None
    if setting is None:
        return None
    members = _of_one_split(list(_members(rows, setting)), asked)
    counted = _counted(members)
    runs = [_run(one, counts=one in counted) for one in members]
    return Group(
        kind=rows[0]["kind"],
        seed_setting=setting,
        runs=sorted(runs, key=lambda run: (run.seed, run.job_id)),
        benches=list(_benches(counted)),
    )


def _members(rows: Sequence[RowMapping], setting: str) -> Iterator[_Run]:
    for row in rows:
        seed = whole(setting_of(row["config"], setting))
        if seed is not None:
            yield _Run(row, seed, _lines(row))


def _of_one_split(members: Sequence[_Run], asked: int | None) -> list[_Run]:
    """Without runs that held out other rows all the same: those of the asked run count, else those
    of the newest that says which.
    """
    first = sorted(members, key=lambda one: one.row["id"] != asked)
    split = next((one.split for one in first if one.split is not None), None)
    return [one for one in members if one.split in {None, split}]


def _counted(members: Sequence[_Run]) -> list[_Run]:
    """Of each seed the newest run with a score, by seed. `members`: newest first."""
    newest: dict[int, _Run] = {}
    for one in members:
        if State(one.row["state"]).final and one.lines:
            newest.setdefault(one.seed, one)
    return [newest[seed] for seed in sorted(newest)]


def _run(one: _Run, *, counts: bool) -> GroupRun:
    decider = one.lines[0] if one.lines else None
    return GroupRun(
        job_id=one.row["id"],
        name=one.row["name"],
        seed=one.seed,
        state=State(one.row["state"]),
        finished_at=one.row["finished_at"],
        before=decider.before if decider else None,
        after=decider.after if decider else None,
        counts=counts,
    )


def _lines(row: RowMapping) -> list[BenchLine]:
    """What a run was judged on; none before its report."""
    result = row["result"] if isinstance(row["result"], dict) else {}
    found = benches_of(result, {})
    if not any(line.decides for line in found):
        before, after = real(result.get("heldout_before")), real(result.get("heldout_after"))
        own = BenchLine(name=OWN, label="held-out", kind=OWN, decides=True, split="report")
        found = [own.model_copy(update={"before": before, "after": after}), *found]
    scored = [one for one in found if one.before is not None and one.after is not None]
    if not any(line.decides for line in scored):
        return []
    return sorted(scored, key=lambda line: not line.decides)


def _benches(counted: Sequence[_Run]) -> Iterator[GroupBench]:
    """Those that every run that counts was judged on."""
    of_runs = [{line.name: line for line in one.lines} for one in counted]
    for line in counted[0].lines if counted else ():
        if not all(line.name in found for found in of_runs):
            continue
        mine = [found[line.name] for found in of_runs]
        befores = [one.before for one in mine if one.before is not None]
        afters = [one.after for one in mine if one.after is not None]
        lifts = [after - before for before, after in zip(befores, afters, strict=True)]
        yield GroupBench(
            name=line.name,
            label=line.label,
            decides=line.decides,
            split=line.split,
            before=Between.of(spread(befores)),
            after=Between.of(spread(afters)),
            lift=Between.of(spread(lifts, (-1.0, 1.0))),
            afters=afters,
        )
