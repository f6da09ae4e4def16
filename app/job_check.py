"""The look before a job is sent: will it fit, what will it take, was it tried, what is different.

One answer for the page and for each live check of it. Knows no route and no field's place.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.schema import leaves
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.kinds import cautions, validate
from worker.admission import memory_of
from worker.database import Database
from worker.jobs.submission import Submission
from worker.jobs.sweeps import cautions_of, checked_axes, config_at, points
from worker.jobs.views import JobView
from worker.lane.prospect import Prospect, prospect

LOOKED_AT = 12
"""Points of a sweep that are looked at; the others are taken to be like them."""
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
    looked: Sequence[Prospect] = ()
    """One for the job, or for the first points of a sweep."""
    cautions: Sequence[ConfigProblem] = ()
    differences: Sequence[Difference] | None = None
    """To the original; None when there is none, or the config does not hold."""
    shown: Sequence[str] = field(default_factory=list)

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
        """The one that needs the most memory."""
        return max(self.looked, key=lambda found: found.need_gb or 0.0, default=None)

    @property
    def seconds(self) -> float:
        """Of all jobs together."""
        return self._all([found.expected_s for found in self.looked])

    @property
    def cost_usd(self) -> float:
        return self._all([found.cost_usd for found in self.looked])

    @property
    def tried(self) -> list[Prospect]:
        """Those with a finished result."""
        return [found for found in self.looked if found.tried]

    def _all(self, values: Sequence[float]) -> float:
        return sum(values) / len(values) * self.jobs if values else 0.0


def check(database: Database, wanted: Submission, original: JobView | None = None) -> Check:
    """Look at a submission; what is wrong with it stands in the answer."""
    try:
        configs, jobs = _configs(wanted)
        models = [validate(wanted.kind, config) for config in configs]
    except ConfigError as error:
        return Check(problems=error.problems)
    room = memory_of(database)
    looked = [prospect(database, wanted.kind, model, lambda: room) for model in models]
    differences = None
    if original is not None:
        resolved = [model.model_dump(mode="json") for model in models]
        differences = _differences(original.config, resolved, wanted.sweep or {})
    return Check(
        jobs=jobs,
        looked=looked,
        cautions=cautions_of(wanted) if wanted.sweep else cautions(wanted.kind, wanted.config),
        differences=differences,
    )


def _configs(wanted: Submission) -> tuple[list[Mapping[str, Any]], int]:
    """(the configs to look at, how many jobs there will be). Raises ConfigError."""
    if wanted.sweep is None:
        return [wanted.config], 1
    axes = checked_axes(wanted)
    jobs = 1
    for values in axes.values():
        jobs *= len(values)
    first = itertools.islice(points(axes), LOOKED_AT)
    return [config_at(wanted.config, point) for point in first], jobs


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
    return [value for at, value in enumerate(values) if value not in values[:at]]
