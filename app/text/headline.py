"""What a job's `result_json` says, read once for every page, the CLI and the title.

The engine writes the result and may be of another version: a field that is missing or of another
type reads as not known. Knows no page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from app.text.benches import average_of
from app.text.wording import duration
from engine.contract.events import PHASES
from engine.contract.known import pair, real, whole
from worker.attempt.ingest import SILENT_SINCE
from worker.estimate.time_left import left_s
from worker.queue.states import State
from worker.read.benches import benches_of
from worker.read.jobs import JobView
from worker.report.runs import GAIN


class HasResult(Protocol):
    """A job, or a row of a table that shows one."""

    @property
    def result(self) -> Mapping[str, Any]: ...
    @property
    def started_at(self) -> float | None: ...
    @property
    def finished_at(self) -> float | None: ...
    @property
    def lane_s(self) -> float | None: ...


@dataclass(frozen=True)
class Headline:
    """The figures that stand first. Scores are shares of one; times are seconds."""

    phase: str | None = None
    step: int | None = None
    max_steps: int | None = None
    pool: float | None = None
    heldout: float | None = None
    """The newest held-out score on `select` while the job runs."""
    eta_s: float | None = None
    """What the engine expected to need yet, at `eta_at` (Unix seconds)."""
    eta_at: float | None = None
    part: str | None = None
    """How far a long phase within the step is: `decode 12 of 64, 3 min left`."""
    silent_since: float | None = None
    """Unix seconds of its last event, while it runs and has said nothing for too long."""
    before: float | None = None
    """Step-0 policy on the `report` rows."""
    after: float | None = None
    """Selected checkpoint on the same rows."""
    lift: float | None = None
    lift_low: float | None = None
    lift_high: float | None = None
    verdict: str | None = None
    reason: str | None = None
    """What belongs behind the verdict: a loss elsewhere, no transfer, why there is none."""
    average_of: str | None = None
    """The parts of `before` and `after` where they are the mean over the sources of a mixture."""
    report_n: int | None = None
    different: int | None = None
    """Different questions among those rows."""
    at_least: float | None = None
    """Of a gain: what is left of the lift on all held-out rows, the picking counted."""
    selected_step: int | None = None
    steps: int | None = None
    seconds: float | None = None
    """How long it held the lane; where no attempt is known, as its engine counted its steps."""
    peak_gb: float | None = None

    @classmethod
    def of(cls, job: HasResult) -> Headline:
        """Read a job's live or final result."""
        result = job.result
        low, high = pair(result.get("lift_ci95"))
        return cls(
            phase=_text(result.get("phase")),
            step=whole(result.get("step")),
            max_steps=whole(result.get("max_steps")),
            pool=real(result.get("pool_score")),
            heldout=real(result.get("last_heldout")),
            eta_s=real(result.get("eta_s")),
            eta_at=real(result.get("eta_at")),
            part=_part(result.get("part")),
            silent_since=real(result.get(SILENT_SINCE)),
            before=real(result.get("heldout_before")),
            after=real(result.get("heldout_after")),
            lift=real(result.get("lift")),
            lift_low=low,
            lift_high=high,
            verdict=_verdict(result),
            reason=_text(result.get("verdict_reason")),
            average_of=average_of(benches_of(result, {})),
            report_n=whole(result.get("report_n")),
            different=whole(result.get("report_different")),
            at_least=real(result.get("lift_at_least")),
            selected_step=whole(result.get("selected_step")),
            steps=whole(result.get("steps")),
            seconds=_lasted(job),
            peak_gb=real(result.get("peak_gb")),
        )

    def left_s(self, now: float) -> float | None:
        """Seconds that it needs yet, below zero those that it is overdue by."""
        return left_s({"eta_s": self.eta_s, "eta_at": self.eta_at}, now)

    @property
    def progress(self) -> str | None:
        """`3/40`; the step alone where nobody said how many there are."""
        if self.step is None or self.max_steps is None:
            return None if self.step is None else str(self.step)
        return f"{self.step}/{self.max_steps}"

    @property
    def phases(self) -> list[tuple[str, str]]:
        """Every phase with `done`, `now` or `to come`, in the order a run meets them first."""
        current = PHASES.index(self.phase) if self.phase in PHASES else -1
        return [
            (phase, "now" if index == current else "done" if index < current else "to come")
            for index, phase in enumerate(PHASES)
        ]


def title(job: JobView, headline: Headline) -> str:
    """What the browser's tab says: state and progress first."""
    if job.state is State.RUNNING and headline.progress:
        return f"{headline.progress} {job.state} · {label(job)}"
    if headline.verdict and job.state is State.SUCCEEDED:
        return f"{headline.verdict} · {label(job)}"
    return f"{job.state} · {label(job)}"


def label(job: JobView) -> str:
    """How a job is called in running text."""
    # A job nobody named bears the name of its kind.
    return f"job {job.id}" if job.name == job.kind else f"{job.name} (job {job.id})"


def _lasted(job: HasResult) -> float | None:
    """Of the lane, as in report and budget, without the hours between its attempts."""
    if job.finished_at is not None and job.lane_s is not None:
        return job.lane_s
    if (counted := real(job.result.get("seconds"))) is not None:
        return counted
    if job.started_at is None or job.finished_at is None:
        return None
    return job.finished_at - job.started_at


def _verdict(result: Mapping[str, Any]) -> str | None:
    """A gain of unknown size is none."""
    verdict = _text(result.get("verdict"))
    return None if verdict == GAIN and real(result.get("lift")) is None else verdict


def _part(value: Any) -> str | None:
    """`decode 12 of 64, 3 min left`, as far as the engine knows it."""
    told = value if isinstance(value, Mapping) else {}
    doing, left = _text(told.get("doing")), real(told.get("left_s"))
    done, of = whole(told.get("done")), whole(told.get("of"))
    if doing is None or done is None:
        return doing
    counted = f"{doing} {done} of {of}" if of is not None else f"{doing} {done or ''}".rstrip()
    return counted if left is None else f"{counted}, {duration(left)} left"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
