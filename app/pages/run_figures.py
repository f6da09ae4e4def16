"""The figures under the first line of a run's page: where it stands, what it cost.

Label above value; which there are follows from the kind and from how far the run has come.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from app.charts.charts import Gap
from app.text import wording
from app.text.checkpoint import PASSK, REQUANT
from app.text.findings import Findings
from app.text.headline import Headline
from app.text.passk import PassK
from app.text.requant import Quantized
from app.text.scoring import Scoring
from worker.queue.states import State
from worker.read.jobs import JobView
from worker.read.series import Summary


class Figure(NamedTuple):
    """One of them."""

    label: str
    value: str
    note: str = ""
    address: str = ""
    """Where its value leads to."""
    big: bool = False
    """It answers the question of the page."""


@dataclass(frozen=True)
class Figures:
    """What they are made from."""

    job: JobView
    headline: Headline
    found: Findings
    scoring: Scoring | None
    passk: PassK | None
    quantized: Quantized | None
    gates: Summary | None
    warmup: Summary | None
    warmup_target: float | None
    gap: Gap | None
    peak_gb: float | None

    def all(self) -> list[Figure]:
        """In their order; the time that is left counts on in the page."""
        return [*self._what(), *self._chosen(), *self._spent()]

    def _what(self) -> Iterator[Figure]:
        if self.scoring is not None:
            yield from self._scored(self.scoring)
        elif self.job.kind == PASSK:
            yield from self._passk()
        elif self.job.kind == REQUANT:
            yield from self._formats()
        elif self.headline.before is not None:
            if self.headline.average_of:
                yield Figure("held-out is", self.headline.average_of)
        else:
            yield from self._so_far()
        if self.gap is not None:
            yield Figure("gap to pool", wording.points(self.gap.value), self.gap.of)

    def _scored(self, scoring: Scoring) -> Iterator[Figure]:
        yield Figure("scored", str(scoring.done), f"on {', '.join(scoring.benches)}", big=True)
        if scoring.now:
            yield Figure("asking now", scoring.now)
        if scoring.rows:
            yield Figure("rows answered", str(scoring.rows))
        if scoring.run:
            yield Figure("checkpoints of", f"job {scoring.run}", address=f"/jobs/{scoring.run}")

    def _passk(self) -> Iterator[Figure]:
        if self.passk is None:
            yield Figure("pass@k", wording.UNKNOWN, "comes when every row is sampled", big=True)
            return
        for one in self.passk.pass_at:
            if one.k in {1, self.passk.samples}:
                note = f"95 % interval {one.interval}, {wording.rows(one.rows)}"
                yield Figure(f"pass@{one.k}", wording.percent(one.value), note, big=True)
        kept = f"{self.passk.kept} of {wording.rows(self.passk.rows)}"
        yield Figure("worth training on", kept, f"pass rate {self.passk.keep}", big=True)
        parsed = wording.percent(self.passk.parsed)
        yield Figure("parsed", parsed, "completions with an answer")
        yield Figure("cut off", wording.percent(self.passk.truncated))

    def _formats(self) -> Iterator[Figure]:
        if self.quantized is None or not self.quantized.formats:
            note = "come when each is written and scored"
            yield Figure("formats", wording.UNKNOWN, note, big=True)
            return
        for one in self.quantized.formats:
            yield Figure(one.name, wording.percent(one.score), one.size, big=True)

    def _so_far(self) -> Iterator[Figure]:
        gates = self.gates
        if gates is None:
            yield Figure("held-out, select rows", wording.UNKNOWN, "no gate yet")
        else:
            moved, at = wording.percent(gates.first), f"step {gates.first_step}"
            if gates.n > 1:
                moved += f" → {wording.percent(gates.last)}"
                at += f" to step {gates.last_step}"
            yield Figure("held-out, select rows", moved, at)
        if self.warmup is not None and gates is None:
            wanted = f"{wording.percent(self.warmup_target)} wanted; step {self.warmup.last_step}"
            yield Figure("warm-up, held-out", wording.percent(self.warmup.last), wanted)
        yield Figure("pool", wording.percent(self.headline.pool))

    def _chosen(self) -> Iterator[Figure]:
        published, picked = self.found.published_step, self.headline.selected_step
        if picked is not None:
            label = "selected" if published is None else "picked by held-out"
            yield Figure(label, f"step {picked}")
        if published is not None:
            yield Figure("published", f"step {published}{', the base' if published == 0 else ''}")
        if self.found.seconds_per_point is not None:
            yield Figure("time per point gained", wording.duration(self.found.seconds_per_point))

    def _spent(self) -> Iterator[Figure]:
        headline = self.headline
        if headline.steps is not None:
            yield Figure("steps", str(headline.steps))
        elif headline.step is not None:
            steps = f"{headline.step} of {headline.max_steps or wording.UNKNOWN}"
            yield Figure("steps", steps, headline.part or "")
        else:
            yield Figure("steps", wording.UNKNOWN)
        if self.job.state is not State.RUNNING:
            yield Figure("time", wording.duration(headline.seconds))
        yield Figure("engine's peak memory", wording.gigabytes(self.peak_gb))
