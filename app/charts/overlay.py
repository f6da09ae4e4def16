"""One series of several runs on one drawing: a chart whose lines are runs.

Curves come from stored rollups, so every point counts and no spike is lost. Knows no pixel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.charts import charts
from app.charts.panels import HELDOUT, POOL, Chart, Line
from app.charts.run_style import slots
from worker.read.jobs import JobView
from worker.read.series import Curve, gaps_of


@dataclass(frozen=True)
class Overlay:
    """One drawing of the comparison."""

    name: str
    title: str
    series: str
    unit: str = ""
    marks: bool = False

    def chart(self, jobs: Sequence[JobView]) -> Chart:
        """Each job as a line; the job's number stands for the series that is read of it."""
        slot = slots(job.id for job in jobs)
        lines = [
            Line(
                str(job.id),
                line_name(job),
                self.unit,
                slot[job.id].colour,
                marks=self.marks,
                dash=slot[job.id].dash,
            )
            for job in jobs
        ]
        return Chart(f"compare-{self.name}", self.title, lines)


OVERLAYS: Mapping[str, Overlay] = {
    one.name: one
    for one in (
        Overlay("heldout", "Held-out (select rows)", HELDOUT, "share", marks=True),
        Overlay("pool", "Pool (training prompts)", POOL, "share"),
        Overlay("kl", "KL to the step-0 policy", "train/kl", "nats"),
        Overlay("length", "Mean length of completions", "rollout/length_mean", "tokens"),
        Overlay("f1", "F1 of training rollouts", "rollout/f1", "share", marks=True),
        Overlay("loss", "Loss", "train/loss"),
    )
}

EVERY_SERIES = [one.series for one in OVERLAYS.values()]


def drawing(
    overlay: Overlay, jobs: Sequence[JobView], curves: Mapping[str, Curve]
) -> dict[str, Any]:
    """What the browser draws; `curves` by the job's number. A run without a value is left out."""
    broken = {str(job.id): gaps_of(job.result).get(overlay.series, ()) for job in jobs}
    return charts.drawing(overlay.chart(jobs), curves, broken=broken)


def line_name(job: JobView) -> str:
    """How a run is called in a legend; a name that is read from right to left moves nothing."""
    return f"#{job.id}" if job.name == job.kind else f"#{job.id} \u2068{job.name}\u2069"
