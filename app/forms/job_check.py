"""The look before a job is sent: will it fit, what will it take, was it tried, what is different.

One answer for the page and for each live check of it. Knows no route and no field's place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from app.forms.schema import leaves
from engine.contract.envelope import Checkpoints
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.example import Example
from engine.contract.registry import get_kind, validate
from worker.budget.price import take_price
from worker.db.connection import Database
from worker.queue.looking import cautions, seen
from worker.queue.places import in_place
from worker.queue.submission import Submission
from worker.queue.sweeps import cautions_of, checked_axes, config_at, in_order, points, spread
from worker.read.check import Prospect, Prospects, prospects
from worker.read.jobs import JobView
from worker.read.room import free_gb, room_cautions
from worker.schedule.admission import memory_of

Axes = Mapping[str, Sequence[Any]]
Point = Mapping[str, Any]

LOOKED_AT = 12
"""Every point of a sweep of so many jobs is looked at; of a larger one some (`walk`)."""
MISSING = "add it"
"""The remedy by which a setting that is not there is told from one that is wrong."""


@dataclass(frozen=True)
class Difference:
    """One setting that is not as it was in the job this one began from."""

    name: str
    before: Any
    after: Sequence[Any]
    """One value, or each that the sweep gives it."""


@dataclass(frozen=True)
class Check:
    """What is known before anything is sent."""

    problems: Sequence[ConfigProblem] = ()
    jobs: int = 1
    disks: Sequence[Checkpoints] = ()
    """What each that was looked at writes; empty where their kind cannot tell."""
    disk_free_gb: float | None = None
    looked: Sequence[Prospect] = ()
    """One for the job, or for each point of a sweep that was looked at."""
    sample: int = 0
    """So many of the first of them stand for all jobs; the others were sought for their memory."""
    cautions: Sequence[ConfigProblem] = ()
    examples: Sequence[Example] = ()
    """A prompt of each source, of the first point of a sweep."""
    differences: Sequence[Difference] | None = None
    """To the original; None when there is none, or the config does not hold."""

    @property
    def missing(self) -> list[str]:
        """Settings that must yet be given."""
        return [one.field for one in self.problems if one.value is None and one.remedy == MISSING]

    @property
    def wrong(self) -> list[ConfigProblem]:
        """What was given and cannot be."""
        return [one for one in self.problems if one.field not in self.missing]

    @property
    def largest(self) -> Prospect | None:
        """The one that needs the most memory, among those of which that is known."""
        return max(self.looked, key=lambda found: _known(found.need_gb), default=None)

    @property
    def vaguest(self) -> Prospect | None:
        """The one of whose time the least is known: all together are known no better."""
        return min(self.looked, key=lambda found: BASES.index(found.expected_by), default=None)

    @property
    def too_large(self) -> int:
        """How many of those that were looked at do not fit now."""
        return sum(found.fits is False for found in self.looked)

    @property
    def fits(self) -> bool | None:
        """One that does not fit is a no; else one of which nobody knows makes it None."""
        if self.too_large:
            return False
        return None if any(found.fits is None for found in self.looked) else True

    @property
    def put_off(self) -> Prospect | None:
        """One that would not start if it were next now; of several the largest."""
        held = [found for found in self.looked if found.reason]
        return max(held, key=lambda found: _known(found.need_gb), default=None)

    @property
    def seconds(self) -> float:
        """Of all jobs together."""
        return self._all([found.expected_s for found in self.looked])

    @property
    def cost_usd(self) -> float:
        return self._all([found.cost_usd for found in self.looked])

    @property
    def disk_gb(self) -> float | None:
        """Of the checkpoints of all jobs together, as many as each keeps; None where unknown."""
        return self._all([disk.most for disk in self.disks]) if self.disks else None

    @property
    def tried(self) -> list[Prospect]:
        """Those with a finished result."""
        return [found for found in self.looked if found.tried]

    def _all(self, values: Sequence[float]) -> float:
        stand_for_all = values[: self.sample]
        return sum(stand_for_all) / self.sample * self.jobs if stand_for_all else 0.0


BASES = ("guess", "tried", "kind", "same")
"""What a time is known from, the vaguest first."""
TIME_WORDS = {
    "same": "as the same job did",
    "kind": "as its kind did",
    "tried": "at least: it got to no checkpoint in less",
}
MEMORY_WORDS = {
    "own": "as it did before",
    "same": "as the same job did",
    "kind": "estimate, corrected by its kind",
    "estimate": "estimate",
}


def _known(need_gb: float | None) -> float:
    return -1.0 if need_gb is None else need_gb


def check(database: Database, wanted: Submission, original: JobView | None = None) -> Check:
    """Look at a submission; what is wrong with it stands in the answer."""
    take_price(database)  # the command line may have set it
    wanted = in_place(wanted, database.settings.runs_dir)
    problems: list[ConfigProblem] = []
    models: list[BaseModel] = []
    looked: list[Prospect] = []

    def look(ahead: Prospects, point: Point) -> float | None:
        try:
            model = validate(wanted.kind, config_at(wanted.config, point))
        except ConfigError as error:
            problems.extend(one for one in error.problems if one not in problems)
            return None
        # Each change of the form comes here: what a look found before is shown, none is started.
        problems.extend(seen(get_kind(wanted.kind), model).problems)
        models.append(model)
        looked.append(ahead.of(wanted.kind, model))
        return looked[-1].need_gb

    try:
        axes = {} if wanted.sweep is None else checked_axes(wanted)
    except ConfigError as error:
        return Check(problems=error.problems)
    with prospects(database, memory_of(database)) as ahead:
        sample = walk(axes, partial(look, ahead))
    if problems:
        return Check(problems=problems)
    differences = None
    if original is not None:
        resolved = [model.model_dump(mode="json") for model in models]
        differences = _differences(original.config, resolved, axes)
    jobs = math.prod(len(values) for values in axes.values())
    kind = get_kind(wanted.kind)
    return Check(
        jobs=jobs,
        disks=[disk for disk in map(kind.checkpoints, models) if disk is not None],
        disk_free_gb=free_gb(database.settings.runs_dir),
        looked=looked,
        sample=jobs if len(looked) == jobs else sample,
        cautions=[
            *(cautions_of(wanted) if axes else cautions(wanted.kind, wanted.config)),
            *room_cautions(database, wanted.kind, models, looked),
        ],
        examples=kind.examples(models[0]),
        differences=differences,
    )


def walk(axes: Axes, look: Callable[[Point], float | None]) -> int:
    """Look at some points of a sweep; how many of the first stand for all of them.

    Of a small sweep at all. Of a larger one first at a few in which every value stands, then, from
    the one that needs most, at the other values of one setting after another: so the largest is
    found wherever no two settings have to be changed at once. `look`: once at a point, whose need
    it answers. In which order axes and values were given counts for nothing.
    """
    ordered = {name: in_order(axes[name]) for name in sorted(axes)}
    whole = math.prod(len(values) for values in axes.values()) <= LOOKED_AT
    sample = [*points(ordered)] if whole else spread(ordered)
    needs: dict[bytes, float] = {}

    def need(point: Point) -> float:
        key = to_json(point, fallback=str)
        if key not in needs:
            # As the sweep sets it: of a section and a setting in it the later one counts.
            needs[key] = _known(look({name: point[name] for name in axes}))
        return needs[key]

    largest = max(sample, key=need)
    for name, values in ordered.items() if not whole else ():
        others = [{**largest, name: value} for value in values]
        largest = max([largest, *others], key=need)
    return len(sample)


def _differences(
    before: Mapping[str, Any], after: Sequence[Mapping[str, Any]], axes: Mapping[str, Sequence[Any]]
) -> list[Difference]:
    """`after`: the configs that were looked at; an axis has values that are in none of them."""
    old, new = leaves(before), [leaves(config) for config in after]
    found = []
    for name in dict.fromkeys(itertools.chain(old, *new)):
        values = axes.get(name) or _distinct([config.get(name) for config in new])
        if list(values) != [old.get(name)]:
            found.append(Difference(name, old.get(name), values))
    return found


def _distinct(values: Sequence[Any]) -> list[Any]:
    """Each once, as it first came; a setting may be a list, which has no hash."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
