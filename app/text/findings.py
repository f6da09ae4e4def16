"""What a run found out about itself: alerts, diagnosis, what it published, where its time went.

Read from `result_json` and the run directory; a part that is missing or of another type reads as
not there. Knows no page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.text import wording
from app.text.headline import Headline
from engine.contract.known import real, whole
from engine.contract.run_dir import RunDir
from engine.contract.trace import Share, time_by_span
from worker.attempt.ingest import LEFT_OUT, VALUES_LEFT_OUT
from worker.read.alerts import Alert, Sample, said_in, samples_of
from worker.read.benches import BenchLine, benches_of
from worker.read.jobs import JobView

MOST_TRACE_BYTES = 4 * 1024 * 1024
"""A trace beyond this is for Perfetto: summing it up would hold the page."""

MEANINGS: Mapping[str, str] = {
    "gain": "better than the base on held-out rows, also after having picked the best of its gates",
    "no gain proven": "what held-out rows show may be chance; the base is published",
    "pool only": "training rollouts improved, held-out rows did not: the base is published",
    "loss": "worse than the base on held-out rows: the base is published",
    "no verdict": "too few held-out rows that were judged for a claim; the base is published",
}
"""What each verdict says, in a sentence."""


@dataclass(frozen=True)
class Findings:
    """`samples`: completions that show why a run collapsed."""

    alerts: Sequence[Alert] = ()
    samples: Sequence[Sample] = ()
    meaning: str | None = None
    published_step: int | None = None
    seconds_per_point: float | None = None
    shares: Sequence[Share] = ()
    trace: Path | None = None

    @classmethod
    def of(cls, job: JobView) -> Findings:
        """Read a job's live or final result, and its trace."""
        result = job.result
        trace = trace_of(job)
        small = trace is not None and trace.stat().st_size <= MOST_TRACE_BYTES
        return cls(
            alerts=alerts_of(result),
            samples=samples_of(result.get("diagnosis")),
            meaning=meaning_of(job),
            published_step=whole(result.get("published_step")),
            seconds_per_point=real(result.get("seconds_per_point")),
            shares=time_by_span(trace) if trace is not None and small else (),
            trace=trace,
        )


def meaning_of(job: JobView) -> str | None:
    """What a run's verdict says, in words; None while it has none."""
    return _meaning(Headline.of(job), benches_of(job.result, job.config))


def _meaning(headline: Headline, lines: Sequence[BenchLine]) -> str | None:
    """Of a gain also how much of it is sure, and why its interval may include 0; of
    none why there is none. What benches and sources say of it stands in the same sentence.
    """
    told, reason = MEANINGS.get(str(headline.verdict)), headline.reason
    unsound = not lines or any(line.decides and line.reason for line in lines)
    if headline.verdict == "no verdict" and reason and unsound:
        return f"{reason}; the base is published"
    if headline.verdict == "gain" and headline.at_least is not None:
        sure = wording.points(headline.at_least)
        told = f"{told}: at least {sure} on all of them, chance and picking taken off"
    if headline.verdict == "gain" and headline.lift_low is not None and headline.lift_low <= 0:
        told = f"{told}; its size is that on the report rows alone, whose interval includes 0"
    return "; ".join(filter(None, (reason, told))) or None


def alerts_of(result: Mapping[str, Any]) -> list[Alert]:
    """Of a live or final result."""
    events, values = result.get(LEFT_OUT), result.get(VALUES_LEFT_OUT)
    return [*said_in(result), *_left_out(events), *_undrawn(values)]


def in_words(alert: Alert) -> str:
    """On one line, without what shows it."""
    at = "" if alert.step is None else f" at step {alert.step}"
    return f"{alert.code}{at}: {alert.text}"


def trace_of(job: JobView) -> Path | None:
    """The run's trace file; None before there is one."""
    path = RunDir(Path(job.run_dir)).trace
    return path if path.is_file() else None


def _left_out(value: Any) -> list[Alert]:
    n = value.get("n") if isinstance(value, Mapping) else None
    if not isinstance(n, int):
        return []
    what = "an event of this run was" if n == 1 else f"{n} events of this run were"
    text = f"{what} left out, because nobody can read it as what it says it is"
    return [Alert(code="EVENTS_LEFT_OUT", text=f"{text}; the first: {value.get('first')}")]


def _undrawn(value: Any) -> list[Alert]:
    n = value.get("n") if isinstance(value, Mapping) else None
    if not isinstance(n, int):
        return []
    what = "a value of this run is" if n == 1 else f"{n} values of this run are"
    text = f"{what} in no chart and in no table of values; the first: {value.get('first')}"
    return [Alert(code="VALUES_LEFT_OUT", text=text)]
