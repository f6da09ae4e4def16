"""Idle gaps: when the lane did nothing although jobs might have run, and why.

A gap lies between two attempts, or between an attempt and the edge of the hours in which jobs may
run; what goes on leaves none behind it. It is explained from what was decided in it, in this order:
a supervisor that died, a job that was put off, what the last drain said when it ended; else nobody
looked at the queue.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from worker.clock.night import Night
from worker.clock.window import Span, zone_named
from worker.db.decisions import DEFER, DRAIN, DecisionView
from worker.report.going import GoingLine
from worker.report.runs import LOST, RunLine
from worker.schedule.policy import InForce

SHORTEST_S = 60.0
"""A lane takes a moment between two jobs; only longer gaps are worth a word."""


DIED = "the supervisor or the machine died; the next look at the queue came then"
DEAD = "the supervisor or the machine died; nobody has looked at the queue since"


class Busy(NamedTuple):
    """A stretch in which the lane worked."""

    begin: float
    end: float
    death: str | None
    """What is said of a gap behind it, when it ended with its supervisor."""


def busy_in(runs: Sequence[RunLine], going: Sequence[GoingLine]) -> list[Busy]:
    """When the lane worked, oldest first."""
    ended = (entry for run in runs for entry in run.attempts)
    found = [
        Busy(entry.started_at, entry.ended_at, DIED if entry.cause == LOST else None)
        for entry in ended
    ]
    found += [Busy(one.started_at, one.until, None if one.alive else DEAD) for one in going]
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


def gaps_of(
    night: Night,
    until: float,
    busy: Sequence[Busy],
    found: Sequence[DecisionView],
    armed: Sequence[InForce],
    *,
    shortest_s: float = SHORTEST_S,
) -> list[Gap]:
    """Every gap of the night up to `until` that is long enough, oldest first.

    `busy`: oldest first. `armed`: the policies in force; while none was, an idle lane needs no
    explanation.
    """
    gaps = []
    for hours in _hours(night, until, armed):
        begin, death = hours.opens, None
        for one in busy:
            if one.end <= hours.opens or one.begin >= hours.closes:
                continue
            gaps.append(_gap(begin, one.begin, death, found))
            begin, death = max(begin, one.end), one.death
        gaps.append(_gap(begin, hours.closes, death, found))
    return [gap for gap in gaps if gap.seconds >= shortest_s]


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


def _gap(begin: float, end: float, death: str | None, found: Sequence[DecisionView]) -> Gap:
    return Gap(begin=begin, end=end, why=death or _why(begin, end, found))


def _why(begin: float, end: float, found: Sequence[DecisionView]) -> str:
    put_off = [
        entry
        for entry in found
        if entry.what == DEFER
        and entry.at < end
        and (entry.at >= begin or (entry.numbers.get("until") or end) > begin)
    ]
    if put_off:
        words = dict.fromkeys(f"job {entry.job_id}: {entry.rule}" for entry in put_off)
        return ", ".join(list(words)[:5])
    said = [entry for entry in found if entry.what == DRAIN and entry.at < end]
    within = [entry for entry in said if entry.at >= begin]
    last = (within or said)[-1:]
    if last:
        return last[0].detail
    return "nobody looked at the queue: no tick, no cron, no drain"
