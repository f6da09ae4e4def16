"""The forecast (runtime prediction): how long a job will yet hold the lane, from what ran here.

    same       the same experiment finished before: what it took
    kind       others of its kind and model finished: the median of the seconds a step of those
               of about its length, times its steps
    tried      it was given so much and more than once, and got to no checkpoint: it needs more
    guess      nobody can tell, none of them finished: NIGHTLANE_ESTIMATE_HOURS is counted

A job that was begun is expected to need the share of its steps that is left. Beyond LONGEST_S
nobody can tell: that much is counted. From LEAST_RUNS finished runs on, the shortest and the
longest of them are told beside the median. Knows no price.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from sqlalchemy import RowMapping

from engine.contract.known import setting_of
from engine.contract.registry import kinds
from worker.budget.ledger import SECONDS_PER_HOUR
from worker.estimate.history import Done, History
from worker.estimate.time_left import LONGEST_S
from worker.settings import WorkerSettings

Basis = Literal["same", "kind", "tried", "guess"]

LEAST_RUNS = 3
"""Runs from which on their shortest and longest say something of the next one."""
MORE_THAN_TRIED = 1.1
"""What a run needs at least that got to no checkpoint, in shares of what it was given."""


class Expected(NamedTuple):
    """How long, and how that is known."""

    seconds: float
    basis: Basis
    runs: int
    """Finished jobs behind the number."""
    shortest_s: float | None = None
    longest_s: float | None = None
    """What the fastest and the slowest of those runs would need; None for less than LEAST_RUNS."""

    def left(self, share: float) -> Expected:
        """Of a run of which this share, 0 to 1, is yet to come."""

        def part(seconds: float) -> float:
            return min(seconds * share, LONGEST_S)

        if self.shortest_s is None or self.longest_s is None:
            return self._replace(seconds=part(self.seconds))
        shortest, longest = part(self.shortest_s), part(self.longest_s)
        return Expected(part(self.seconds), self.basis, self.runs, shortest, longest)


def expected(history: History, settings: WorkerSettings, candidate: RowMapping) -> Expected:
    """Seconds that a queued job will hold the lane; `candidate` is its row."""
    found = (
        _of_same(history, candidate)
        or _of_kind(history, candidate)
        or Expected(settings.estimate_hours * SECONDS_PER_HOUR, "guess", 0)
    )
    left = found.left(share_left(candidate["result"]))
    given_s = history.fruitless_s([candidate["id"], candidate["clone_of"]])
    if given_s is not None and given_s * MORE_THAN_TRIED > left.seconds:
        return Expected(given_s * MORE_THAN_TRIED, "tried", 0)
    return left


def share_left(result: Mapping[str, Any]) -> float:
    """The part of a run that is yet to come, 0 to 1.

    >>> share_left({"step": 30, "max_steps": 40})
    0.25
    """
    step, steps = result.get("step"), result.get("max_steps")
    if not isinstance(step, int) or not isinstance(steps, int) or steps < 1:
        return 1.0
    return min(1.0, max(0.0, 1 - step / steps))


def _of_same(history: History, candidate: RowMapping) -> Expected | None:
    return _median(_known(history.same(candidate["config_hash"])), "same")


def _of_kind(history: History, candidate: RowMapping) -> Expected | None:
    done = [one for one in _comparable(history, candidate) if one.seconds is not None]
    known = kinds().get(candidate["kind"])
    counted = None if known is None else known.steps
    wanted = _steps(counted, candidate["config"], candidate["result"])
    ran = [
        (steps, seconds)
        for one in done
        if (seconds := one.seconds) is not None
        and (steps := _steps(counted, one.config, one.result))
    ]
    if wanted and ran:
        return _median(
            [seconds / steps * wanted for steps, seconds in _about_as_long(ran, wanted)], "kind"
        )
    return _median(_known(done), "kind")


def _about_as_long(ran: Sequence[tuple[int, float]], wanted: int) -> Sequence[tuple[int, float]]:
    """(steps, seconds) of the runs nearest to so many steps, and of any not twice as far off.

    Of a short run the start is a large part: by its pace a long one would seem to take for ever.

    >>> _about_as_long([(4, 100.0), (30, 25.0), (50, 40.0)], 60)
    [(30, 25.0), (50, 40.0)]
    """

    def off(steps: int) -> float:
        return max(steps / wanted, wanted / steps)

    nearest = min(off(steps) for steps, _ in ran)
    return [one for one in ran if off(one[0]) <= 2 * nearest]


def _comparable(history: History, candidate: RowMapping) -> Sequence[Done]:
    """Runs whose pace is that of the candidate: of its kind, and of its model if it names one."""
    known = kinds().get(candidate["kind"])
    if known is None or known.model is None:
        return history.of_kind(candidate["kind"])
    model = setting_of(candidate["config"], known.model)
    return history.of_model(candidate["kind"], known.model, model)


def _known(done: Sequence[Done]) -> list[float]:
    return [one.seconds for one in done if one.seconds is not None]


def _median(taken: Sequence[float], basis: Basis) -> Expected | None:
    if not taken:
        return None
    ends = (min(taken), max(taken)) if len(taken) >= LEAST_RUNS else (None, None)
    return Expected(statistics.median(taken), basis, len(taken), *ends)


def _steps(setting: str | None, config: Mapping[str, Any], result: Mapping[str, Any]) -> int | None:
    """How many steps a job's config asks for, or else its run said that it makes."""
    asked = None if setting is None else setting_of(config, setting)
    for value in (asked, result.get("max_steps")):
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
