"""Idle gaps: when the lane did nothing although jobs might have run, and why.

A gap lies between two attempts, or between an attempt and the edge of the hours in which jobs may
run; what goes on leaves none behind it. Each part of it is explained by what held then: a
supervisor that died, until the next decision; a reason that the last drain gave; the jobs that were
put off; else that nobody looked at the queue. A job is put off no longer once it began, is over,
or a drain looked again after the time until which it was.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from worker.clock.night import Night
from worker.clock.window import Span, zone_named
from worker.db.decisions import DEFER, DRAIN, NOTHING_MORE, DecisionView
from worker.report.going import GoingLine
from worker.report.runs import LOST, RunLine
from worker.schedule.policy import InForce

SHORTEST_S = 60.0
"""A lane takes a moment between two jobs; only longer gaps are worth a word."""


DIED = "the supervisor or the machine died; the next look at the queue came then"
DEAD = "the supervisor or the machine died; nobody has looked at the queue since"


class Busy(NamedTuple):
    """A stretch in which the lane worked."""

    job_id: int
    begin: float
    end: float
    death: str | None
    """What is said of a gap behind it, when it ended with its supervisor."""


def busy_in(runs: Sequence[RunLine], going: Sequence[GoingLine]) -> list[Busy]:
    """When the lane worked, oldest first."""
    found = [
        Busy(run.job_id, entry.started_at, entry.ended_at, DIED if entry.cause == LOST else None)
        for run in runs
        for entry in run.attempts
    ]
    found += [
        Busy(one.job_id, one.started_at, one.until, None if one.alive else DEAD) for one in going
    ]
    return sorted(found, key=attrgetter("begin"))


class Gap(BaseModel):
    """One idle stretch, Unix seconds."""

    model_config = ConfigDict(frozen=True)

    begin: float
    end: float
    why: str

    @property
    def seconds(self) -> float:
        """How long the lane did nothing."""
        return self.end - self.begin


class Known(NamedTuple):
    """What is known about the night."""

    found: Sequence[DecisionView]
    """Oldest first, as the next."""
    busy: Sequence[Busy]
    over: Mapping[int, float]
    """When those of the jobs that were put off ended, which are over."""

    def explained(
        self, begin: float, end: float, death: str | None, shortest_s: float
    ) -> list[Gap]:
        """A gap in the parts that had one cause each; a shorter part goes with its neighbour."""
        if end - begin < shortest_s:
            return []
        parts: list[Gap] = []
        cuts = [begin, *sorted({at for at in self._moments() if begin < at < end}), end]
        for start, stop in itertools.pairwise(cuts):
            why = self._why(start, begin, death)
            if parts and (parts[-1].why == why or stop - start < shortest_s):
                parts[-1] = parts[-1].model_copy(update={"end": stop})
            elif parts and parts[-1].seconds < shortest_s:
                parts[-1] = Gap(begin=parts[-1].begin, end=stop, why=why)
            else:
                parts.append(Gap(begin=start, end=stop, why=why))
        return parts

    def _moments(self) -> Iterator[float]:
        """When a cause may have begun or ended."""
        for entry in self.found:
            yield entry.at
        yield from self.over.values()

    def _why(self, moment: float, begin: float, death: str | None) -> str:
        """What kept the lane idle at a moment of the gap that began at `begin`."""
        by_then = [entry for entry in self.found if entry.at <= moment]
        if death and not any(entry.at >= begin for entry in by_then):
            return death
        drain = next((entry for entry in reversed(by_then) if entry.what == DRAIN), None)
        newest = {entry.job_id: entry for entry in by_then if entry.what == DEFER}
        held = [entry for entry in newest.values() if self._holds(entry, moment, drain)]
        reason = drain is not None and drain.detail != NOTHING_MORE
        if drain and (not held or (reason and drain.at > max(entry.at for entry in held))):
            return drain.detail
        if held:
            return ", ".join([f"job {entry.job_id}: {entry.rule}" for entry in held][:5])
        return "nobody looked at the queue: no tick, no cron, no drain"

    def _holds(self, entry: DecisionView, moment: float, drain: DecisionView | None) -> bool:
        """Whether a job was still put off at a moment, by the last decision about it."""
        job_id, until = entry.job_id, entry.numbers.get("until")
        if job_id is None or self.over.get(job_id, math.inf) <= moment:
            return False
        if any(one.job_id == job_id and entry.at < one.begin <= moment for one in self.busy):
            return False
        # Put off again by the same rule is not written again, but a drain that looked is.
        return until is None or until > moment or drain is None or drain.at < until


def gaps_of(
    night: Night,
    until: float,
    known: Known,
    armed: Sequence[InForce],
    *,
    shortest_s: float = SHORTEST_S,
) -> list[Gap]:
    """Every gap of the night up to `until` that is long enough, oldest first, cause by cause.

    `armed`: the policies in force; while none was, an idle lane needs no explanation.
    """
    gaps: list[Gap] = []
    for hours in _hours(night, until, armed):
        begin, death = hours.opens, None
        for one in known.busy:
            if one.end <= hours.opens or one.begin >= hours.closes:
                continue
            gaps += known.explained(begin, one.begin, death, shortest_s)
            begin, death = max(begin, one.end), one.death
        gaps += known.explained(begin, hours.closes, death, shortest_s)
    return gaps


def _hours(night: Night, until: float, armed: Sequence[InForce]) -> Iterator[Span]:
    """The parts of the night in which jobs might have run by themselves, oldest first."""
    for policy in armed:
        begin, end = max(night.begin, policy.begin), min(night.end, until, policy.end)
        rule = policy.terms.hours()
        if rule.always:
            spans = [Span(begin, end)]
        else:
            days = (night.day - datetime.timedelta(days=back) for back in (2, 1, 0))
            zone = zone_named(policy.terms.zone)
            spans = [span for day in days if (span := rule.span_of(day, zone)) is not None]
        for span in spans:
            cut = Span(max(span.opens, begin), min(span.closes, end))
            if cut.opens < cut.closes:
                yield cut
