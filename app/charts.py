"""Charts of a run: which series stand on which chart, in columns that uPlot draws.

Each chart also has a sentence and a table, for those who read rather than look. A long series is
thinned to the lowest and highest value of each stretch, so that no spike is lost. Knows no pixel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app import wording

Points = Sequence[tuple[int, float]]

MOST_POINTS = 1200
"""More than a chart has pixels."""
MOST_TABLE_ROWS = 300


@dataclass(frozen=True)
class Line:
    """One series on a chart."""

    series: str
    label: str
    unit: str = ""
    """`share` prints as per cent; anything else stands behind the number."""
    colour: str = "a"
    """Which of the style sheet's chart colours: `--chart-a` …"""
    axis: str = "left"
    marks: bool = False
    """Draw each point: they are rare and each one counts."""

    def text(self, value: float | None) -> str:
        """One value in words."""
        if value is None:
            return wording.UNKNOWN
        if self.unit == "share":
            return wording.percent(value)
        return f"{wording.number(value)} {self.unit}".rstrip()


@dataclass(frozen=True)
class Chart:
    """One drawing."""

    name: str
    title: str
    lines: Sequence[Line]
    band: tuple[str, str] | None = None
    """Series of the lower and upper end of an interval, drawn behind the lines."""
    x_label: str = "step"

    @property
    def series(self) -> list[str]:
        """Every series the chart reads."""
        return [line.series for line in self.lines] + list(self.band or ())


HELDOUT = "heldout/select"
POOL = "pool/score"

CHARTS: Mapping[str, Chart] = {
    chart.name: chart
    for chart in (
        Chart(
            "learning",
            "Pool and held-out success",
            (
                Line(POOL, "pool (training prompts)", "share", "a"),
                Line(HELDOUT, "held-out (select rows)", "share", "b", marks=True),
            ),
            band=(f"{HELDOUT}/low", f"{HELDOUT}/high"),
        ),
        Chart(
            "reward",
            "Reward",
            (
                Line("pool/reward_mean", "mean reward", "", "a"),
                Line("pool/reward_std", "standard deviation", "", "d"),
                Line("rollout/zero_variance", "groups without variance", "share", "c", "right"),
            ),
        ),
        Chart(
            "kl",
            "KL and entropy",
            (
                Line("train/kl", "KL to the step-0 policy", "nats", "a"),
                Line("train/entropy", "entropy", "nats", "c", "right"),
            ),
        ),
        Chart(
            "length",
            "Length and truncation",
            (
                Line("rollout/length_mean", "mean length", "tokens", "a"),
                Line("rollout/truncated", "truncated", "share", "c", "right"),
            ),
        ),
        Chart(
            "throughput",
            "Throughput and memory",
            (
                Line("rollout/tokens_per_s", "sampling", "tokens/s", "a"),
                Line("mem/rss_gb", "engine's memory", "GB", "c", "right"),
            ),
        ),
        Chart(
            "detection",
            "Rollouts against the ground truth",
            (
                Line("rollout/precision", "precision", "share", "a", marks=True),
                Line("rollout/recall", "recall", "share", "b", marks=True),
                Line("rollout/f1", "F1", "share", "c", marks=True),
            ),
        ),
        Chart(
            "stage2_loss",
            "Losses by term",
            (
                Line("loss/ce", "text", "", "a"),
                Line("loss/bbox_smoothl1", "SmoothL1 of boxes", "", "b"),
                Line("loss/bbox_ciou", "CIoU of boxes", "", "c", "right"),
            ),
        ),
        Chart(
            "drops",
            "Entries dropped from rollouts",
            (
                Line("stage2_ab/channel_b/strict_drop/N_valid_pred", "kept", "", "a", marks=True),
                Line(
                    "stage2_ab/channel_b/strict_drop/N_drop_invalid", "dropped", "", "c", marks=True
                ),
                Line("stage2/invalid_rollout", "invalid rollouts", "", "d", marks=True),
            ),
        ),
        Chart(
            "packing",
            "Packing",
            (
                Line("packing/post_rollout_fill", "fill of packs", "share", "a"),
                Line("train/forwards", "forwards of a step", "", "c", "right"),
            ),
        ),
        Chart(
            "warmup",
            "Warm-up",
            (
                Line("warmup/heldout", "held-out (select rows)", "share", "b", marks=True),
                Line("warmup/loss", "loss", "", "c", axis="right"),
                Line("format/well_formed", "well-formed, form taught first", "share", "d"),
            ),
            x_label="warm-up step",
        ),
    )
}

EVERY_SERIES = sorted({name for chart in CHARTS.values() for name in chart.series})


def drawing(
    chart: Chart, metrics: Mapping[str, Points], selected_step: int | None = None
) -> dict[str, Any]:
    """What the browser draws: x and one column a series, aligned, null where there is no value.

    A series that this kind of run does not have is left out, its name in the legend too.
    `gates` are the steps at which held-out was asked, `selected` the step that it picked.
    """
    thin = {name: thinned(metrics.get(name, ())) for name in chart.series}
    steps = sorted({step for points in thin.values() for step, _ in points})
    columns = {name: dict(points) for name, points in thin.items()}
    return {
        "title": chart.title,
        "x_label": chart.x_label,
        "x": steps,
        "lines": [
            {
                "label": line.label,
                "unit": line.unit,
                "colour": line.colour,
                "axis": line.axis,
                "marks": line.marks,
                "values": [columns[line.series].get(step) for step in steps],
            }
            for line in chart.lines
            if thin[line.series]
        ],
        "gates": [step for step, _ in metrics.get(HELDOUT, ())],
        "gaps": gaps(metrics),
        "selected": selected_step if HELDOUT in chart.series else None,
        "band": [[columns[name].get(step) for step in steps] for name in chart.band or ()],
    }


def thinned(points: Points, most: int = MOST_POINTS) -> Points:
    """At most about `most` points: the lowest and the highest of each stretch, ends kept."""
    if len(points) <= most:
        return points
    stretch = -(-len(points) * 2 // most)
    kept = {points[0], points[-1]}
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        kept.add(min(part, key=lambda point: point[1]))
        kept.add(max(part, key=lambda point: point[1]))
    return sorted(kept)


def summary(chart: Chart, metrics: Mapping[str, Points]) -> str:
    """The chart in sentences: where each line began, its range, where it stands."""
    said = [_told(line, points) for line in chart.lines if (points := metrics.get(line.series))]
    if not said:
        return "No values yet."
    if chart.name == "learning" and (gap := latest_gap(metrics)) is not None:
        side = "above" if gap >= 0 else "below"
        said.append(f"Pool stands {wording.points(abs(gap)).lstrip('+±')} {side} held-out.")
    return " ".join(said)


def _told(line: Line, points: Points) -> str:
    name = line.label[:1].upper() + line.label[1:]
    first, last = points[0], points[-1]
    if len(points) == 1:
        return f"{name}: {line.text(last[1])} at step {last[0]}."
    low, high = min(value for _, value in points), max(value for _, value in points)
    return (
        f"{name}: {line.text(first[1])} at step {first[0]}, {line.text(last[1])} at step {last[0]} "
        f"(between {line.text(low)} and {line.text(high)})."
    )


def gaps(metrics: Mapping[str, Points]) -> list[tuple[int, float, float]]:
    """(step, pool, held-out) at each gate: a growing gap between the two is learning by heart.

    One step's pool score is noisy, so it is the mean of the last five up to that gate.
    """
    pool = metrics.get(POOL, ())
    found = []
    for step, score in metrics.get(HELDOUT, ()):
        recent = [value for at, value in pool if at <= step][-5:]
        if recent:
            found.append((step, sum(recent) / len(recent), score))
    return found


def latest_gap(metrics: Mapping[str, Points]) -> float | None:
    """Pool minus held-out at the newest gate that has both."""
    found = gaps(metrics)
    return found[-1][1] - found[-1][2] if found else None


def table(chart: Chart, metrics: Mapping[str, Points]) -> dict[str, Any]:
    """The same values as rows of text, newest last; says how many it leaves out."""
    columns = {line.series: dict(metrics.get(line.series, ())) for line in chart.lines}
    steps = sorted({step for values in columns.values() for step in values})
    shown = steps[-MOST_TABLE_ROWS:]
    low, high = (dict(metrics.get(name, ())) for name in chart.band) if chart.band else ({}, {})
    rows = [
        [str(step)]
        + [line.text(columns[line.series].get(step)) for line in chart.lines]
        + ([_band_text(low.get(step), high.get(step))] if chart.band else [])
        for step in shown
    ]
    head = [chart.x_label, *(line.label for line in chart.lines)]
    if chart.band:
        head.append("95 % interval")
    if HELDOUT in columns:
        distance = {step: pool - heldout for step, pool, heldout in gaps(metrics)}
        head.append("gap, pool − held-out")
        for row, step in zip(rows, shown, strict=True):
            row.append(wording.points(distance.get(step)))
    return {"title": chart.title, "head": head, "rows": rows, "left_out": len(steps) - len(shown)}


def _band_text(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return wording.UNKNOWN
    return f"{wording.percent(low)} to {wording.percent(high)}"
