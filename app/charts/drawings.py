"""What a run measured, as JSON: drawings of its charts for the browser, its curves for REST.

Knows no page.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

from app.charts import charts
from app.charts.charts import Axis, Shade, Zoom
from app.charts.flags import flags
from app.charts.panels import HELDOUT, TOKENS, Chart
from app.text.findings import alerts_of
from app.text.headline import Headline
from worker.db.connection import Database
from worker.read import jobs, series
from worker.read.jobs import JobView
from worker.read.series import EVERY_STEP, MOST_POINTS, Curve, Gaps, Steps, Summary, evenly

AxisName = Literal["step", "tokens", "time"]
WARMUP_LOSS = "warmup/loss"
LEAST_WEIGHT = 1e-4
"""A value before a part that weighs less in the moving average is left out of it."""
MOST_LEAD = 10_000


class View(NamedTuple):
    """Which part of a run a drawing shows, along which axis and how finely."""

    axis: AxisName = "step"
    steps: Steps = EVERY_STEP
    most: int = MOST_POINTS
    """Points of a line."""
    smooth: float = 0.0
    """The share of a moving average that stays at each value; its beginning lies before a part."""

    def of(self, chart: Chart) -> View:
        """What of it this chart can show: warm-up steps are counted on their own."""
        if chart.x_label != "step":
            return View(most=self.most)
        return self if self.steps.first is not None else self._replace(smooth=0.0)

    @property
    def lead(self) -> int:
        """Points before a part that its drawing hangs on; 0 of what begins with the run."""
        if self.steps.first is None or not self.smooth:
            return 0
        return min(MOST_LEAD, math.ceil(math.log(LEAST_WEIGHT) / math.log(self.smooth)))


def drawing_json(database: Database, job: JobView, chart: Chart, view: View) -> str:
    """One chart's columns, as the browser draws them (charts.drawing)."""
    return charts.encoded(_drawing(_Asked(database, job, chart, view.of(chart))))


def curves_json(
    database: Database, job_id: int, names: Sequence[str] | None, view: View, gaps: Gaps
) -> str:
    """Curves by series, all or those named, as {name: {n, stretch, points: [[last step, lowest,
    highest, last value], …], gaps: [[first step, last step], …]}}.
    """
    found = series.curves(database, job_id, names, view.steps, view.most)
    told = (f"{json.dumps(name)}:{_told(found[name], gaps.get(name, ()))}" for name in found)
    return f"{{{','.join(told)}}}"


def _told(curve: Curve, gaps: Sequence[tuple[int, int]]) -> str:
    """Seven digits: more than a screen shows."""
    points = zip(curve.steps, curve.lows, curve.highs, curve.values, strict=True)
    told = ",".join(map("[%d,%.7g,%.7g,%.7g]".__mod__, points))
    lost = json.dumps(gaps, separators=(",", ":"))
    return f'{{"n":{curve.n},"stretch":{curve.size},"points":[{told}],"gaps":{lost}}}'


class _Asked(NamedTuple):
    """What a drawing is made from."""

    database: Database
    job: JobView
    chart: Chart
    view: View

    @property
    def began(self) -> float:
        return _span(self.job)[0]

    @property
    def unit(self) -> float:
        """Seconds in what an axis of time counts in."""
        return charts.time_unit(_span(self.job)[1])[0]

    @property
    def warmup(self) -> Summary | None:
        """Of the loss while the form of an answer is taught."""
        return series.summaries(self.database, self.job.id, [WARMUP_LOSS]).get(WARMUP_LOSS)

    @property
    def selected(self) -> int | None:
        """The step whose checkpoint held-out picked."""
        return Headline.of(self.job).selected_step


def _drawing(asked: _Asked) -> dict[str, Any]:
    _, job, chart, view = asked
    curves = _curves(asked)
    zoom = Zoom(view.steps, _lead(asked, curves), view.smooth)
    axis = _axis(asked, curves, zoom)
    shades = _shades(asked, curves, axis)
    broken = series.gaps_of(job.result, view.steps)
    raised = flags(alerts_of(job.result), chart)
    drawn = charts.drawing(
        chart, curves, asked.selected, axis, shades, zoom=zoom, broken=broken, flags=raised
    )
    if curves and axis is None and view.axis != "step":
        drawn["said"] += f"; drawn by step, for {_without_axis(view.axis, job.id)}"
    return drawn


def _curves(asked: _Asked) -> dict[str, Curve]:
    """Of the part; a rare series runs through it, from its value before to the one after it."""
    database, job, chart, view = asked
    found = series.curves(database, job.id, chart.series, view.steps, view.most)
    if view.steps == EVERY_STEP:
        return found
    return found | series.curves_through(database, job.id, chart.rare, view.steps, view.most)


def _lead(asked: _Asked, curves: Mapping[str, Curve]) -> dict[str, Curve]:
    database, job, chart, view = asked
    if not view.lead:
        return {}
    known = {name: curve for name, curve in curves.items() if name not in chart.rare}
    return series.leads(database, job.id, known, view.lead)


def _without_axis(name: AxisName, job_id: int) -> str:
    """Why there is no such axis, and the way to one."""
    if name == "time":
        return (
            "its values are older than the moments kept beside them; "
            f"cockpit reindex {job_id} brings those from its events"
        )
    return f"this run has no {name} recorded"


def _axis(asked: _Asked, curves: Mapping[str, Curve], zoom: Zoom) -> Axis | None:
    database, job, _, view = asked
    if view.axis == "time":
        outside = _outside(asked, curves)
        return charts.time_axis(chain(curves.values(), zoom.lead.values(), outside), *_span(job))
    if view.axis == "step":
        return None
    # Summed up from the run's beginning, whatever part of it is shown.
    return charts.token_axis(series.curves(database, job.id, [TOKENS]).get(TOKENS))


def _outside(asked: _Asked, curves: Mapping[str, Curve]) -> list[Curve]:
    """At a gate outside of the part, what else was measured then: its moment is the earliest."""
    database, job, chart, view = asked
    steps = {step for curve in curves.values() for step in (curve.steps[0], curve.steps[-1])}
    return [
        curve
        for step in steps
        if not view.steps.holds(step)
        for curve in series.curves(database, job.id, chart.series, Steps(step, step)).values()
    ]


def _span(job: JobView) -> tuple[float, float]:
    """(first start, seconds up to the last sign of life)."""
    began = job.started_at or job.created_at
    return began, (job.finished_at or job.heartbeat_at or began) - began


def _shades(asked: _Asked, curves: Mapping[str, Curve], axis: Axis | None) -> list[Shade]:
    """Attempts by their steps; by time the warm-up, the held-out gates and the waits between."""
    if axis is None or axis.name == "tokens":
        return _attempts(asked, curves, axis or Axis())
    began, unit, warmup = asked.began, asked.unit, asked.warmup
    found = []
    if warmup and warmup.first_at is not None and warmup.last_at is not None:
        ends = (warmup.first_at - began) / unit, (warmup.last_at - began) / unit
        found.append(Shade("warm-up", *ends))
    ended = None
    for attempt in jobs.attempts(asked.database, asked.job.id):
        if ended is not None:
            waited = (ended - began) / unit, (attempt.started_at - began) / unit
            found.append(Shade("not running", *waited))
        ended = attempt.ended_at
    return found + _gates(asked, curves, axis)


def _gates(asked: _Asked, curves: Mapping[str, Curve], axis: Axis) -> list[Shade]:
    if HELDOUT not in asked.chart.series or HELDOUT not in curves:
        return []
    gates = list(zip(curves[HELDOUT].steps, curves[HELDOUT].moments, strict=True))
    return [
        Shade("gate", axis.at(step), (at - asked.began) / asked.unit)
        for step, at in evenly(gates, charts.MOST_GATES)
        if at is not None
    ]


def _attempts(asked: _Asked, curves: Mapping[str, Curve], axis: Axis) -> list[Shade]:
    database, job, chart, _ = asked
    mine = [name for name in chart.series if name in curves]
    if job.attempt < 2 or not mine:
        return []
    began = series.attempts_began(database, job.id, mine[0])
    ends = [step for _, step in began[1:]] + [curves[mine[0]].steps[-1]]
    return [
        Shade(f"attempt {number}", axis.at(step), axis.at(end))
        for (number, step), end in zip(began, ends, strict=True)
        if number % 2 == 0
    ]
