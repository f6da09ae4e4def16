"""One series of several runs on one drawing: a chart whose lines are runs.

Curves come from stored rollups, so every point counts and no spike is lost. Knows no pixel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from app.charts import charts
from app.charts.charts import Axis
from app.charts.panels import HELDOUT, POOL, Chart, Line, heldout_name
from app.charts.run_style import slots
from engine.contract.between_runs import spread
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


def of_series(series: str) -> Overlay:
    """A drawing of any recorded series: a usual one by its title, another by its name."""
    usual = next((one for one in OVERLAYS.values() if one.series == series), None)
    return usual or Overlay("series", series, series, marks=heldout_name(series) is not None)


def drawing(
    overlay: Overlay,
    jobs: Sequence[JobView],
    curves: Mapping[str, Curve],
    *,
    axes: Mapping[str, Axis] = MappingProxyType({}),
    groups: Sequence[Sequence[int]] = (),
) -> dict[str, Any]:
    """What the browser draws; `curves` by the job's number. A run without a value is left out.

    `axes`: where the steps of each job stand, if not at their number. `groups`: jobs that are drawn
    as their mean, with a band from three runs on.
    """
    chart = overlay.chart(jobs)
    label = next((axis.label for axis in axes.values()), chart.x_label)
    placed = {name: _along(curve, axes.get(name)) for name, curve in curves.items()}
    chart, placed = _averaged(replace(chart, x_label=label), placed, groups)
    broken = {str(job.id): gaps_of(job.result).get(overlay.series, ()) for job in jobs}
    return charts.drawing(chart, placed, broken={} if axes or groups else broken)


def token_axes(tokens: Mapping[str, Curve]) -> dict[str, Axis]:
    """Sampled tokens of each job, added up, in one unit for all."""
    totals = {
        name: sum(mean * n for mean, n in zip(one.means, one.counts, strict=True))
        for name, one in tokens.items()
    }
    unit, label = charts.token_unit(max(totals.values(), default=0.0))
    found = {}
    for name, curve in tokens.items():
        own, _ = charts.token_unit(totals[name])
        axis = charts.token_axis(curve)
        if axis is not None:
            marks = [(step, x * own / unit) for step, x in axis.marks]
            found[name] = Axis("tokens", label, marks)
    return found


def time_axes(jobs: Sequence[JobView], curves: Mapping[str, Curve]) -> dict[str, Axis]:
    """Time since the first start of each job, in one unit for all."""
    spans = {str(job.id): _span(job) for job in jobs}
    longest = max((seconds for _, seconds in spans.values()), default=0.0)
    found = {
        name: charts.time_axis([curve], spans[name][0], longest) for name, curve in curves.items()
    }
    return {name: axis for name, axis in found.items() if axis is not None}


def _span(job: JobView) -> tuple[float, float]:
    """(first start, seconds up to the last sign of life)."""
    began = job.started_at or job.created_at
    return began, (job.finished_at or job.heartbeat_at or began) - began


def _along(curve: Curve, axis: Axis | None) -> Curve:
    """With the places of an axis for steps; a value measured at the place of another one goes."""
    if axis is None:
        return curve
    places = {at: row for row, at in enumerate(axis.all(curve.steps))}
    rows = list(places.values())
    columns = ([column[row] for row in rows] for column in curve[3:])
    at = list(places)
    return Curve._make((curve.size, at, at, *columns))


def _averaged(
    chart: Chart, curves: Mapping[str, Curve], groups: Sequence[Sequence[int]]
) -> tuple[Chart, dict[str, Curve]]:
    """Each group as one line, in the place and the look of its first run."""
    lines, found = {line.series: line for line in chart.lines}, dict(curves)
    for group in groups:
        names = [str(job_id) for job_id in group if str(job_id) in found]
        mean = mean_curve([found[name] for name in names]) if len(names) > 1 else None
        if mean is None:
            continue
        first, *others = names
        lines[first] = replace(
            lines[first], label=f"{lines[first].label}, mean of {len(names)} seeds"
        )
        found[first] = mean
        for name in others:
            del lines[name], found[name]
    return replace(chart, lines=list(lines.values())), found


def mean_curve(curves: Sequence[Curve]) -> Curve | None:
    """The mean over runs at every step that all have, and from three runs on its 95 % interval.

    Only by steps: at a token or a minute no two runs measured.
    """
    shared = sorted(set.intersection(*(set(curve.steps) for curve in curves)))
    if not shared:
        return None
    by_step = [dict(zip(curve.steps, curve.values, strict=True)) for curve in curves]
    found = [spread([one[step] for one in by_step], (-math.inf, math.inf)) for step in shared]
    means = [one.mean for one in found]
    made = Curve.of_values(shared, means, [None] * len(shared))
    if len(curves) < FEWEST_FOR_A_BAND:
        return made
    ends = [one.ci95 or (one.mean, one.mean) for one in found]
    return made._replace(lows=[low for low, _ in ends], highs=[high for _, high in ends])


FEWEST_FOR_A_BAND = 3
"""Two runs span an interval that says nothing."""


def line_name(job: JobView) -> str:
    """How a run is called in a legend; a name that is read from right to left moves nothing."""
    return f"#{job.id}" if job.name == job.kind else f"#{job.id} \u2068{job.name}\u2069"
