"""Idle gaps: when the lane did nothing although jobs might have run, and why.

A gap lies between two attempts, or between an attempt and the edge of the hours in which jobs may
run. It is explained from what was decided in it, in this order: a supervisor that died, a job that
was put off, what the last drain said when it ended; else nobody looked at the queue.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from worker.lane.decisions import DEFER, DRAIN, DecisionView
from worker.lane.policy import InForce
from worker.lane.window import Span, zone_named
from worker.report.night import Night
from worker.report.runs import LOST, AttemptLine, RunLine

SHORTEST_S = 60.0
"""A lane takes a moment between two jobs; only longer gaps are worth a word."""


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
    runs: Sequence[RunLine],
    found: Sequence[DecisionView],
    armed: Sequence[InForce],
    *,
    shortest_s: float = SHORTEST_S,
) -> list[Gap]:
    """Every gap of the night up to `until` that is long enough, oldest first.

    `armed`: the policies in force; while none was, an idle lane needs no explanation.
    """
    attempts = sorted(
        (entry for run in runs for entry in run.attempts), key=lambda entry: entry.started_at
    )
    gaps = []
    for hours in _hours(night, until, armed):
        begin, before = hours.opens, None
        for entry in attempts:
            if entry.ended_at <= hours.opens or entry.started_at >= hours.closes:
                continue
            gaps.append(_gap(begin, entry.started_at, before, found))
            begin, before = max(begin, entry.ended_at), entry
        gaps.append(_gap(begin, hours.closes, before, found))
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


def _gap(
    begin: float, end: float, before: AttemptLine | None, found: Sequence[DecisionView]
) -> Gap:
    return Gap(begin=begin, end=end, why=_why(begin, end, before, found))


def _why(
    begin: float, end: float, before: AttemptLine | None, found: Sequence[DecisionView]
) -> str:
    if before is not None and before.cause == LOST:
        return "the supervisor or the machine died; the next look at the queue came then"
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
