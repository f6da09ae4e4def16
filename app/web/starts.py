"""What a new job can start from: recipes that ship, and runs of before. Knows no kind by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from app.text.headline import Headline
from app.web.shipped import Recipe, recipes
from engine.contract.kind import Kind
from engine.contract.known import setting_of
from worker.db.connection import Database
from worker.read import jobs
from worker.read.jobs import JobView

RUNS = 6
"""Runs that stand beside the recipes; the table of runs has all."""
_LOOKED_AT = 100


class Start(NamedTuple):
    """A run of before with what came of it."""

    job: JobView
    word: str
    """Its verdict, else its state."""
    lift: float | None
    """Held-out change in shares of one."""


class Starts(NamedTuple):
    """The list beside the editor."""

    runs: Sequence[Start]
    recipes: Sequence[Recipe]
    more: bool
    """Whether there are other runs."""


def starts(database: Database) -> Starts:
    """Those with a gain first, the largest in front; then the newest; demos last."""
    found = [
        _start(job)
        for job in jobs.list_jobs(database, limit=_LOOKED_AT)
        if job.state.final and not job.archived_at
    ]
    found.sort(key=_order)
    return Starts(found[:RUNS], recipes(), len(found) > RUNS)


def _order(start: Start) -> tuple[bool, bool, float, int]:
    return start.job.demo, start.word != "gain", -(start.lift or 0), -start.job.id


def _start(job: JobView) -> Start:
    headline = Headline.of(job)
    return Start(job, headline.verdict or str(job.state), headline.lift)


def models_here(database: Database, kind: Kind) -> list[str]:
    """Models that newer jobs of the kind ran, the newest first."""
    if kind.model is None:
        return []
    newest = jobs.list_jobs(database, limit=_LOOKED_AT)
    named = [setting_of(job.config, kind.model) for job in newest if job.kind == kind.name]
    return list(dict.fromkeys(name for name in named if isinstance(name, str)))
