"""Charts of a run: curves in columns that uPlot draws, in sentences, and as rows of a table.

A long curve comes in stretches: each keeps its lowest and highest value as an envelope around the
line, so that no spike is lost. Knows no pixel.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from types import MappingProxyType
from typing import Any, NamedTuple

from app.charts.flags import Flag
from app.charts.panels import HELDOUT, POOL, Chart, Line, heldout_name
from app.text import wording
from worker.read.series import EVERY_STEP, Curve, Gaps, Steps, Summary, evenly

Points = Sequence[tuple[int, float]]
Values = Sequence[float | None]

MOST_POINTS = 1200
"""More than a chart has pixels."""
MOST_TABLE_ROWS = 300
MOST_OUTLINE_ROWS = 20
"""Of each line."""
NO_NUMBER = "not a number"
MOST_GATES = 100
"""Of more gates so many are marked: else the marks of a long run become one grey curtain."""
RECENT = 5
"""One step's pool score is noisy: the gap takes the mean of so many."""
HOURS_FROM_S = 3 * 3600.0
_FLAT = 2e-6
"""Of a value: what differs by less is one line, as a drawing's values have seven digits."""
_LEAST, _MOST = 1e-290, 1e290
"""Between these, in size, the ends of an axis and its ticks can be counted with."""


class Column(list[float | None]):
    """Numbers of a drawing, None where there is none; written with seven digits."""


@dataclass(frozen=True)
class Axis:
    """Where a step stands from left to right."""

    name: str = "step"
    label: str = "step"
    marks: Sequence[tuple[int, float]] = ()
    """Known places as (step, x), both rising; none: a step stands at its number."""
    _steps: Sequence[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_steps", [step for step, _ in self.marks])

    def all(self, steps: Sequence[int]) -> list[float]:
        """The places of some steps."""
        return list(steps) if not self.marks else [self.at(step) for step in steps]

    def at(self, step: int) -> float:
        """The place of a step; between two known ones, in proportion."""
        if not self.marks:
            return step
        place = bisect_right(self._steps, step)
        if place == 0:
            return self.marks[0][1]
        if place == len(self.marks):
            return self.marks[-1][1]
        (low, begin), (high, end) = self.marks[place - 1], self.marks[place]
        return begin + (end - begin) * (step - low) / (high - low)


class Table(NamedTuple):
    """Values as rows of text, oldest first."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    said: str = ""
    """What a row stands for."""
    left_out: int = 0
    """Values that are older than these."""


@dataclass(frozen=True)
class Shade:
    """A part of the axis with a meaning: an attempt, the warm-up, a gate."""

    label: str
    first: float
    last: float


class Zoom(NamedTuple):
    """What of a run is drawn, and what of the rest its drawing hangs on."""

    steps: Steps = EVERY_STEP
    lead: Mapping[str, Curve] = MappingProxyType({})
    """By series, the points before its first one there."""
    smooth: float = 0.0
    """The share of a moving average that stays at each value."""


class Gap(NamedTuple):
    """Pool minus held-out at a gate."""

    value: float
    """A difference of shares."""
    step: int
    """The gate's."""
    n: int
    """Pool scores up to it that pool is the mean of."""

    @property
    def of(self) -> str:
        """Which values it is the difference of, in words."""
        steps = "pool of 1 step" if self.n == 1 else f"mean pool of {self.n} steps"
        return f"at the gate of step {self.step}, {steps}"


def time_axis(curves: Iterable[Curve], began: float, seconds: float) -> Axis | None:
    """Minutes since the first start, hours in a long run; None without a moment to each value."""
    moments: dict[int, float] = {}
    for curve in curves:
        for step, at in zip(curve.steps, curve.moments, strict=True):
            if at is not None:
                moments[step] = min(at, moments.get(step, at))
    if not moments:
        return None
    unit, name = time_unit(seconds)
    steps = sorted(moments)
    rising = _rising([moments[step] for step in steps])
    places = (round((at - began) / unit, 5) for at in rising)  # hours to 36 ms
    marks = list(zip(steps, places, strict=True))
    return Axis("time", f"{name} since the first start", marks)


def _rising(moments: Sequence[float]) -> Iterator[float]:
    """Moments in their order; a clock that was put back goes on from where it stood."""
    put_back, last = 0.0, moments[0]
    for at in moments:
        put_back += max(0.0, last - at)
        last = at
        yield at + put_back


def time_unit(seconds: float) -> tuple[float, str]:
    """What an axis of so many seconds counts in."""
    return (3600.0, "hours") if seconds >= HOURS_FROM_S else (60.0, "minutes")


def token_axis(tokens: Curve | None) -> Axis | None:
    """Sampled tokens, added up; None for a run that does not record them."""
    if tokens is None:
        return None
    sums = list(
        accumulate(max(0.0, mean * n) for mean, n in zip(tokens.means, tokens.counts, strict=True))
    )
    unit, name = token_unit(sums[-1])
    places = (round(total / unit, 6) for total in sums)
    marks = [(tokens.first_steps[0] - 1, 0.0), *zip(tokens.steps, places, strict=True)]
    return Axis("tokens", name, marks)


def token_unit(total: float) -> tuple[float, str]:
    """What an axis up to so many tokens counts in: nobody counts the zeros of 25000000000."""
    if total >= 1e9:
        return 1e9, "billion tokens sampled"
    return (1e6, "million tokens sampled") if total >= 1e6 else (1.0, "tokens sampled")


def drawing(
    chart: Chart,
    curves: Mapping[str, Curve],
    selected_step: int | None = None,
    axis: Axis | None = None,
    shades: Sequence[Shade] = (),
    *,
    zoom: Zoom = Zoom(),  # noqa: B008 - it never changes
    broken: Gaps = MappingProxyType({}),
    flags: Sequence[Flag] = (),
) -> dict[str, Any]:
    """What the browser draws: x and one column a series, aligned, None where there is no value.

    A series that this kind of run does not have is left out, its name in the legend too. `steps`
    are the steps of x where that counts something else; `low` and `high` of a line its envelope,
    where a point is a stretch of steps; `gates` where held-out was asked, `selected` what it
    picked, both only inside the part. Of a part, `range` is what x spans: rare values come with
    their neighbours outside of it; `start` of a line is its moving average's state before it.
    `broken`: where what was measured is no number. x has such a step too, and `gaps` of a line says
    at which places of x it is interrupted. `flags` are warnings inside the part: (x, number).
    """
    axis = axis or Axis(label=chart.x_label)
    scored = any(line.series in curves for line in chart.lines if line.axis == "left")
    edges = (chart.band or ()) if scored else ()
    shown = [*(line.series for line in chart.lines), *edges]
    mine = {name: curves[name] for name in shown if name in curves}
    holes = {name: _holes(curve, broken.get(name, ())) for name, curve in mine.items()}
    steps = _all_steps(list(mine.values()), holes.values())
    gates = mine[HELDOUT].within(zoom.steps).steps if HELDOUT in mine else []
    marked = evenly(gates, MOST_GATES)
    seen = selected_step is not None and zoom.steps.holds(selected_step)
    picked = selected_step if seen and any(map(heldout_name, chart.series)) else None
    lines = [
        _line(line, mine[line.series], steps)
        | _start(line, zoom)
        | _interrupted(steps, holes[line.series])
        for line in chart.lines
        if line.series in mine
    ]
    band = [
        _column(mine[name].steps, mine[name].values, steps)
        if name in mine
        else Column([None]) * len(steps)
        for name in edges
    ]
    return {
        "title": chart.title,
        "x_label": axis.label,
        "x": axis.all(steps),
        **({"steps": steps} if axis.marks else {}),
        **_range(zoom.steps, steps, axis),
        "lines": lines,
        "ends": _ends(lines, band),
        "gates": axis.all(marked),
        "selected": None if picked is None else axis.at(picked),
        "band": band,
        "flags": [[axis.at(one.step), one.number] for one in flags if zoom.steps.holds(one.step)],
        "shades": [[shade.label, shade.first, shade.last] for shade in shades],
        "said": drawn_of(
            [(mine[name].within(zoom.steps), _no_numbers(broken.get(name, ()))) for name in mine]
        )
        + (f"; {len(marked)} of {len(gates)} gates are marked" if len(marked) < len(gates) else ""),
    }


def _ends(lines: Sequence[Mapping[str, Any]], band: Sequence[Values]) -> dict[str, list[float]]:
    """By side, from where to where its axis reaches: every line and interval is seen whole."""
    found = {}
    for side in ("left", "right"):
        mine = [line for line in lines if line["axis"] == side]
        columns = [
            line[name] for line in mine for name in ("values", "low", "high") if name in line
        ]
        columns += band if side == "left" else []
        values = [value for column in columns for value in column if value is not None]
        if mine:
            low, high = (min(values), max(values)) if values else (0.0, 1.0)
            share = all(line["unit"] == "share" for line in mine) and 0 <= low <= high <= 1
            found[side] = [*(_fifths if share else _round_ends)(low, high)]
    return found


def _fifths(low: float, high: float) -> tuple[float, float]:
    """Shares end on round fifths, so that the picture does not jump with each new value."""
    ends = math.floor((low - 0.02) * 5) / 5, math.ceil((high + 0.02) * 5) / 5
    return max(0.0, min(ends[0], 0.8)), min(1.0, max(ends[1], 0.2))


def _round_ends(low: float, high: float) -> tuple[float, float]:
    """A tenth of their span beyond both, on round numbers; zero for what is never beyond it."""
    low, high = (max(-_MOST, min(end, _MOST)) for end in (low, high))
    most = max(abs(low), abs(high))
    most = most if most > _LEAST else 0.0
    span = high - low if high - low > most * _FLAT and most else most or 1.0
    step = 10.0 ** math.floor(math.log10(span) - 0.5)
    below = math.floor((low - span / 10) / step) * step
    beyond = math.ceil((high + span / 10) / step) * step
    if below < 0 <= low:
        below = 0.0
    elif high <= 0 < beyond:
        beyond = 0.0
    return float(f"{below:.12g}"), float(f"{beyond:.12g}")


def _range(part: Steps, steps: Sequence[int], axis: Axis) -> dict[str, list[float]]:
    """The ends of a part that has some length, as far as the run reaches."""
    if part == EVERY_STEP or not steps:
        return {}
    first = steps[0] if part.first is None else max(part.first, steps[0])
    last = steps[-1] if part.last is None else min(part.last, steps[-1])
    ends = [axis.at(first), axis.at(last)]
    return {"range": ends} if ends[0] < ends[1] else {}


def _start(line: Line, zoom: Zoom) -> dict[str, Column]:
    """Sum and weight of an exponential moving average behind what leads up to the part."""
    if line.marks or not zoom.smooth or line.series not in zoom.lead:
        return {}
    total = weight = 0.0
    for value in zoom.lead[line.series].values:
        total = zoom.smooth * total + (1 - zoom.smooth) * value
        weight = zoom.smooth * weight + (1 - zoom.smooth)
    return {"start": Column([total, weight])}


def _holes(curve: Curve, broken: Sequence[tuple[int, int]]) -> list[int]:
    """The first step of each gap that lies between two points; in a stretch, its other values stand
    for it.
    """
    found = []
    for first, last in broken:
        before = bisect_right(curve.first_steps, last) - 1
        if before < 0 or curve.steps[before] < first:
            found.append(first)
    return found


def _no_numbers(gaps: Sequence[tuple[int, int]]) -> int:
    """How many values they hold."""
    return sum(last - first + 1 for first, last in gaps)


def _interrupted(steps: Sequence[int], holes: Sequence[int]) -> dict[str, list[int]]:
    places = dict(zip(steps, range(len(steps)), strict=True)) if holes else {}
    return {"gaps": [places[step] for step in holes]} if holes else {}


def _all_steps(curves: Sequence[Curve], holes: Iterable[Sequence[int]] = ()) -> Sequence[int]:
    """Of all curves and their gaps, rising. Most have the same."""
    more = {step for one in holes for step in one}
    if not more and all(curve.steps == curves[0].steps for curve in curves):
        return curves[0].steps if curves else []
    return sorted(more.union(*(curve.steps for curve in curves)))


def _line(line: Line, curve: Curve, steps: Sequence[int]) -> dict[str, Any]:
    envelope = {}
    if curve.size > 1 or curve.lows is not curve.values:  # stretches of steps, or a mean over runs
        envelope = {
            "low": _column(curve.steps, curve.lows, steps),
            "high": _column(curve.steps, curve.highs, steps),
        }
    return {
        "label": line.label,
        "unit": line.unit,
        "colour": line.colour,
        "axis": line.axis,
        "marks": line.marks,
        "dash": list(line.dash),
        "values": _column(curve.steps, curve.values, steps),
        **envelope,
    }


def _column(mine: Sequence[int], values: Sequence[float], steps: Sequence[int]) -> Column:
    if mine == steps:
        return Column(values)
    return Column(map(dict(zip(mine, values, strict=True)).get, steps))


def encoded(drawing: Mapping[str, Any]) -> str:
    """A drawing as JSON: steps in full, values with seven digits, which is more than a screen
    shows and half of what a float prints.
    """
    return _written(drawing)


def _written(value: Any) -> str:
    if isinstance(value, Column):
        return f"[{','.join(map(_number, value))}]"
    if isinstance(value, Mapping):
        return (
            f"{{{','.join(f'{json.dumps(name)}:{_written(one)}' for name, one in value.items())}}}"
        )
    if isinstance(value, list) and value and isinstance(value[0], Column | Mapping):
        return f"[{','.join(map(_written, value))}]"
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _number(value: float | None) -> str:
    return "null" if value is None else f"{value:.7g}"


def drawn_of(curves: Sequence[tuple[Curve, int]]) -> str:
    """How many points stand for how many values, where they are not the same. Each curve comes with
    how many more values are no numbers; of several it is that with the most of these.
    """
    if not curves:
        return ""
    curve, broken = max(curves, key=lambda one: (one[1], one[0].n))
    points, values = len(curve.steps), curve.n
    if values == 0:
        return "no value in this part: the line joins those before and behind it"
    lost = wording.no_numbers(broken)
    if curve.size == 1:
        if broken:
            return f"{values} of {values + broken} points{lost}"
        return "1 point" if values == 1 else f"all {values} points"
    return (
        f"{points} of {values + broken} points: each stands for {curve.size} steps, "
        f"the shade around it from their lowest to their highest value{lost}"
    )


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


def summary(chart: Chart, known: Mapping[str, Summary], gap: Gap | None = None) -> str:
    """The chart in sentences: where each line began, its range, where it stands."""
    said = [_told(line, known[line.series]) for line in chart.lines if line.series in known]
    if not said:
        return "No values yet."
    if HELDOUT in chart.series and gap is not None:
        side = "above" if gap.value >= 0 else "below"
        apart = wording.points(abs(gap.value)).lstrip("+±")
        said.append(f"Pool stands {apart} {side} held-out ({gap.of}).")
    return " ".join(said)


def _told(line: Line, known: Summary) -> str:
    name = line.label[:1].upper() + line.label[1:]
    if known.n == 1:
        return f"{name}: {line.text(known.last)} at step {known.last_step}."
    return (
        f"{name}: {line.text(known.first)} at step {known.first_step}, "
        f"{line.text(known.last)} at step {known.last_step} "
        f"(between {line.text(known.low)} and {line.text(known.high)})."
    )


def gap_at(step: int, heldout: float, pool: Points) -> Gap | None:
    """The gap at the gate of a step: `pool` are the last steps' scores up to it."""
    if not pool:
        return None
    mean = sum(value for _, value in pool) / len(pool)
    return Gap(mean - heldout, step, len(pool))


def outline(
    chart: Chart, curves: Mapping[str, Curve], broken: Gaps = MappingProxyType({})
) -> Table:
    """A chart in few rows: at a step the value, with its interval, or of a stretch up to there the
    lowest and the highest.
    """
    lines = [line for line in chart.lines if line.series in curves]
    cells = {
        line.series: {
            **dict.fromkeys(_holes(curves[line.series], broken.get(line.series, ())), NO_NUMBER),
            **_cells(line, chart, curves),
        }
        for line in lines
    }
    steps = sorted({step for known in cells.values() for step in known})
    rows = [
        [str(step), *(cells[line.series].get(step, wording.UNKNOWN) for line in lines)]
        for step in steps
    ]
    size = max((curves[line.series].size for line in lines), default=1)
    said = "" if size == 1 else f"Each row: the last value of {size} steps (lowest to highest)."
    return Table(chart.title, [chart.x_label, *(line.label for line in lines)], rows, said)


def _cells(line: Line, chart: Chart, curves: Mapping[str, Curve]) -> Mapping[int, str]:
    """Its values in words, by step."""
    curve = curves[line.series]
    ends: dict[int, tuple[float, float]] = {}
    if line.marks and chart.band:
        low, high = (_by_step(curves.get(name)) for name in chart.band)
        ends = {step: (low[step], high[step]) for step in low if step in high}
    elif curve.size > 1:
        pairs = zip(curve.lows, curve.highs, strict=True)
        ends = dict(zip(curve.steps, pairs, strict=True))
    told = {}
    for step, value in _by_step(curve).items():
        span = " to ".join(map(line.text, ends.get(step, ())))
        told[step] = f"{line.text(value)} ({span})" if span else line.text(value)
    return told


def _by_step(curve: Curve | None) -> Mapping[int, float]:
    return dict(zip(curve.steps, curve.values, strict=True)) if curve else {}


def table(
    chart: Chart,
    metrics: Mapping[str, Points],
    n: int,
    broken: Gaps = MappingProxyType({}),
) -> Table:
    """The newest values; says how many of the `n` it leaves out."""
    columns = {line.series: dict(metrics.get(line.series, ())) for line in chart.lines}
    measured = {step for values in columns.values() for step in values}
    lost = {line.series: _newest(broken.get(line.series, ())) for line in chart.lines}
    shown = sorted(measured.union(*lost.values()))[-MOST_TABLE_ROWS:]
    low, high = (dict(metrics.get(name, ())) for name in chart.band) if chart.band else ({}, {})
    rows = [
        [str(step)]
        + [
            NO_NUMBER if step in lost[line.series] else line.text(columns[line.series].get(step))
            for line in chart.lines
        ]
        + ([_band_text(low.get(step), high.get(step))] if chart.band else [])
        for step in shown
    ]
    head = [chart.x_label, *(line.label for line in chart.lines)]
    if chart.band:
        head.append("95 % interval")
    if HELDOUT in columns:
        head.append(f"gap, mean pool of {RECENT} steps − held-out")
        pool = metrics.get(POOL, ())
        for row, step in zip(rows, shown, strict=True):
            score = columns[HELDOUT].get(step)
            recent = [pair for pair in pool if pair[0] <= step][-RECENT:]
            gap = None if score is None else gap_at(step, score, recent)
            row.append(wording.points(gap.value if gap else None))
    return Table(chart.title, head, rows, left_out=max(0, n - len(shown)))


def _newest(broken: Sequence[tuple[int, int]]) -> set[int]:
    """The steps of the last gaps, as many as a table has rows."""
    steps = (step for a, b in reversed(broken) for step in range(b, a - 1, -1))
    return set(islice(steps, MOST_TABLE_ROWS))


def _band_text(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return wording.UNKNOWN
    return f"{wording.percent(low)} to {wording.percent(high)}"
