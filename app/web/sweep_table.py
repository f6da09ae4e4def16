"""A sweep as a table: one row a job, the swept settings as columns. Knows no page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.text.headline import Headline
from engine.contract.embedded import is_demo
from engine.contract.known import real
from worker.read.groups import Group
from worker.read.jobs import JobView, SweepView

_RANKS = ("heldout", "lift", "verdict")
OWN_COLUMNS = ("job", "state", "heldout", "lift", "verdict")


@dataclass(frozen=True)
class SweepRow:
    """One job at its point of the sweep."""

    job: JobView
    headline: Headline
    values: Sequence[Any]
    """In the order of the axes."""

    @property
    def score(self) -> float | None:
        """On the report rows where it is done, else the newest gate."""
        return self.headline.heldout if self.headline.after is None else self.headline.after


@dataclass(frozen=True)
class GroupRow:
    """One config of a sweep over all of its seeds."""

    job_id: int
    """One of its jobs: it names the group."""
    group: Group
    values: Sequence[Any]
    """Of the axes but the seed, in their order."""


def group_axes(sweep: SweepView, groups: Sequence[Group]) -> list[str]:
    """The swept settings that tell its seed groups apart."""
    seeds = {group.seed_setting for group in groups}
    return [name for name, values in sweep.axes.items() if name not in seeds and len(values) > 1]


def group_rows(
    sweep: SweepView, jobs: Sequence[JobView], groups: Sequence[Group]
) -> list[GroupRow]:
    """A row for each seed group, in the order of its first job in the sweep."""
    of_sweep = {job.id: job.sweep_point or {} for job in sorted(jobs, key=lambda one: -one.id)}
    axes = group_axes(sweep, groups)
    rows = []
    for group in groups:
        first = min(run.job_id for run in group.runs if run.job_id in of_sweep)
        rows.append(GroupRow(first, group, [of_sweep[first].get(name) for name in axes]))
    return sorted(rows, key=lambda row: row.job_id)


def sweep_rows(sweep: SweepView, jobs: Sequence[JobView], order: str) -> list[SweepRow]:
    """Sorted by a column; a leading minus turns it around. An unknown one sorts by job."""
    rows = [
        SweepRow(job, Headline.of(job), [(job.sweep_point or {}).get(name) for name in sweep.axes])
        for job in sorted(jobs, key=lambda one: one.id)
    ]
    name = order.removeprefix("-")
    found = sorted(rows, key=lambda row: _key(sweep, row, name), reverse=order.startswith("-"))
    if name not in _RANKS:
        return found
    return sorted(found, key=lambda row: is_demo(row.job.config))  # a demo never leads


def _key(sweep: SweepView, row: SweepRow, name: str) -> tuple[int, float, str]:
    """Numbers by size, then words, and what is not known first: last when turned around."""
    values: dict[str, Any] = dict(zip(sweep.axes, row.values, strict=True))
    own = {
        "job": row.job.id,
        "state": row.job.state.value,
        "heldout": row.score,
        "lift": row.headline.lift,
        "verdict": row.headline.verdict,
    }
    value = own[name] if name in own else values.get(name, row.job.id)
    if value is None:
        return 0, 0.0, ""
    number = real(value)
    return (2, 0.0, str(value)) if number is None else (1, number, "")
