"""What stands above the tabs of a run's page: its verdict as a sentence, what it was judged on, the
checkpoint that it chose, and what can be done with the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from markupsafe import Markup

from app.charts.scale import Scale
from app.text import run_cells, wording
from app.text.checkpoint import Checkpoint, checkpoint_of
from app.text.headline import Headline
from app.text.outcome import Outcome, base_name, outcome_of
from worker.queue.states import State
from worker.read.benches import BenchLine, benches_of
from worker.read.jobs import JobView
from worker.read.runs.run import Change

_COPIES = {"path": "the path", "load": "the Python that loads it"}


class Action(NamedTuple):
    """A form that is sent to the job."""

    verb: str
    words: str


class Command(NamedTuple):
    """A line of the checkpoint's box."""

    name: str
    text: str

    @property
    def copies(self) -> str:
        """What its button says to who does not see the line."""
        return f"copy {_COPIES.get(self.name, f'the command to {self.name} it')}"


class BenchRow(NamedTuple):
    """What it was judged on, a line each."""

    label: str
    decides: bool
    verdict: str
    glyph: str
    mark: Markup
    points: str
    interval: str
    moved: str
    rows: str


@dataclass(frozen=True)
class RunHead:
    """Made for every tab: it reads the job's row and a few small files."""

    job: JobView
    headline: Headline
    now: float
    lease_s: float

    @cached_property
    def outcome(self) -> Outcome:
        """The first line."""
        return outcome_of(self.job)

    @cached_property
    def checkpoint(self) -> Checkpoint | None:
        """The chosen one."""
        return checkpoint_of(self.job)

    @property
    def commands(self) -> Iterator[Command]:
        """The path, then a line for each use."""
        if self.checkpoint is not None:
            yield Command("path", str(self.checkpoint.path))
            yield from (Command(*one) for one in self.checkpoint.commands.items())

    @property
    def facts(self) -> str:
        """`#35, rl_run of Qwen3-4B, ended 03:42 after 2 h 48 min`."""
        job, base = self.job, base_name(self.job)
        kind = job.kind if base == "the base" else f"{job.kind} of {base}"
        told = [f"#{job.id}", kind, *(["demo"] if job.demo else []), *self._when()]
        if job.attempt > 1:
            told.append(f"attempt {job.attempt}")
        return ", ".join(told)

    def _when(self) -> Iterator[str]:
        job = self.job
        if job.finished_at is not None:
            yield f"ended {wording.when(job.finished_at)}"
            if self.headline.seconds is not None:
                yield f"took {wording.duration(self.headline.seconds)}"
        elif job.started_at is not None:
            yield f"since {wording.when(job.started_at)}"
        else:
            yield f"queued {wording.when(job.created_at)} by {job.created_by}"

    @property
    def running(self) -> bool:
        """Whether an attempt holds the lane."""
        return self.job.state is State.RUNNING

    @property
    def deserted(self) -> bool:
        """It runs, and nobody looks after it any more."""
        seen = self.job.heartbeat_at or self.job.started_at or self.now
        return self.running and self.now - seen >= self.lease_s

    @property
    def actions(self) -> Iterator[Action]:
        """What can be done with it now."""
        job = self.job
        if self.running and not job.stop_requested:
            yield Action("requeue", "Back to the queue")
        if not job.state.final and job.stop_requested != "cancel":
            yield Action("cancel", "Cancel")
        if job.state.retryable:
            yield Action("retry", "Try again, resume")
        if job.state.final:
            yield Action("retry-fresh", "Run again from the beginning")

    @cached_property
    def _lines(self) -> Sequence[tuple[BenchLine, Change]]:
        return [
            (line, Change(line.lift, line.low, line.high, line.before, line.after, line.n))
            for line in benches_of(self.job.result, self.job.config)
            if line.lift is not None
        ]

    @cached_property
    def scale(self) -> Scale:
        """One axis for all of them."""
        return Scale.of(change for _, change in self._lines)

    @property
    def benches(self) -> list[BenchRow]:
        """Empty where the sentence says all."""
        return [self._bench(line, change) for line, change in self._lines]

    def _bench(self, line: BenchLine, change: Change) -> BenchRow:
        verdict = line.verdict or "no verdict"
        scores = run_cells.before_after(change)
        return BenchRow(
            label=line.label,
            decides=line.decides,
            verdict=verdict,
            glyph=run_cells.GLYPHS.get(verdict, "–"),
            mark=self.scale.mark(change, verdict, run_cells.in_words(change)),
            points=run_cells.difference(change),
            interval=run_cells.plus_minus(change),
            moved=" → ".join(scores) + " %" if scores else wording.UNKNOWN,
            rows=wording.UNKNOWN if line.n is None else f"n {line.n}",
        )
