"""A chart as the server draws it: what a page shows in its first frame, before any script runs.

From the columns that the browser's charts are drawn from (charts.drawing), with the same ends of
the axes, so that no line moves when those take its place. Lines lie in a box that is stretched to
the page's width; words keep their shape. Colours are the style sheet's. Knows no run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from markupsafe import Markup, escape

WIDTH, HEIGHT = 2000, 500
"""Of the box in which lines are placed, in whole numbers."""
TOP, BOTTOM = 17, 46
"""Pixels of a chart above and below its field, as the browser's charts keep them."""
_LEAST_PX, _LEAST_PX_ACROSS = 30, 50
"""Between two ticks."""
_DIGIT_PX = 8
_PHONE_PX = 270
"""Of a field there, where fewer ticks have a word."""
_UPWARD, _ONWARD = (1, 2, 2.5, 5), (1, 2, 5)
"""What ticks are apart, but for a power of ten."""
_SELECTED_PX = 80

Values = Sequence[float | None]


class Scale(NamedTuple):
    """Which values an axis reaches from and to."""

    low: float
    high: float

    def part(self, value: float) -> float:
        """How far along the axis a value stands, as a share."""
        return (value - self.low) / (self.high - self.low)

    def ticks(self, px: float, least: float, apart: Sequence[float], *, whole: bool) -> list[float]:
        """Round numbers along so many pixels, at least so many pixels from one another."""
        wanted = least * (self.high - self.low) / px
        power = math.floor(math.log10(wanted))
        steps = (times * 10.0**exponent for exponent in (power, power + 1) for times in apart)
        step = next(step for step in steps if step >= wanted * (1 - 1e-9))
        step = max(step, 1.0 if whole else step)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def still(drawing: Mapping[str, Any], width: int, height: int) -> Markup:
    """Elements that show one drawing; empty without values.

    `height`: of the chart, in CSS pixels; `width`: about that of its field, for the words' room.
    """
    if not drawing["x"]:
        return Markup()
    field = Field.of(drawing, width, height - TOP - BOTTOM)
    lines = "".join((*_behind(drawing, field), *_lines(drawing, field)))
    words = "".join(_words(drawing, field))
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none"'
    units = {side: _unit(drawing, side) for side in field.up}
    sides = "".join(f' data-{side}="{"unit" if unit else ""}"' for side, unit in units.items())
    names = "".join(
        f'<span class="unit" data-side="{side}">{escape(unit)}</span>'
        for side, unit in units.items()
        if unit
    )
    part = " data-part" if "range" in drawing else ""
    keys = "".join(map(_key, drawing["lines"]))
    legend = f"<span>{escape(drawing['x_label'])}</span>{keys}"
    return Markup(  # noqa: S704 - numbers, and words that are escaped
        f'<div class="still" aria-hidden="true"><div class="plotted"{sides}{part}>'
        f'<svg height="{field.height}" {box}>{lines}</svg>'
        f'<svg class="words" height="{field.height}">{words}</svg>{names}</div>'
        f'<p class="legend">{legend}</p><p class="drawn quiet">{escape(drawing["said"])}</p></div>'
    )


class Field(NamedTuple):
    """Where values stand: of which axes, with which ticks, on about how many pixels."""

    width: int
    height: int
    across: Scale
    up: Mapping[str, Scale]
    ticks: Mapping[str, Sequence[float]]
    """Of each side, those `across`, and which of these a phone has room for."""

    @classmethod
    def of(cls, drawing: Mapping[str, Any], width: int, height: int) -> Field:
        """That of a drawing with values."""
        x = drawing["x"]
        low, high = drawing.get("range") or (x[0], x[-1])
        across = Scale(low, high) if low < high else Scale(low - 1, high + 1)
        up = {side: Scale(*ends) for side, ends in drawing["ends"].items()}
        whole = all(float(at).is_integer() for at in x)
        longest = max(len(_tick(end, "")) for end in across)
        least = max(_LEAST_PX_ACROSS, 16 + _DIGIT_PX * longest)
        ticks = {
            name: across.ticks(px, least, _ONWARD, whole=whole)
            for name, px in (("across", width), ("phone", _PHONE_PX))
        }
        for side, scale in up.items():
            ticks[side] = scale.ticks(height, _LEAST_PX, _UPWARD, whole=False)
        return cls(width, height, across, up, ticks)

    def x(self, value: float) -> int:
        """In the box of the lines."""
        return round(self.across.part(value) * WIDTH)

    def y(self, side: str, value: float) -> int:
        """In the box of the lines, downwards."""
        return round((1 - self.up[side].part(value)) * HEIGHT)

    def points(self, side: str, places: Sequence[int], values: Values) -> list[tuple[int, int]]:
        """Those that there are."""
        return [
            (x, self.y(side, value))
            for x, value in zip(places, values, strict=True)
            if value is not None
        ]


def _behind(drawing: Mapping[str, Any], field: Field) -> Iterator[str]:
    """Shades, the grid, gates, gaps: what the lines lie on."""
    for _, first, last in drawing["shades"]:
        begin, end = max(0, field.x(first)), min(WIDTH, field.x(last))
        if begin < end:
            yield f'<path class="shade" d="M{begin} 0H{end}V{HEIGHT}H{begin}z"/>'
    rows = (f"M0 {field.y('left', at)}h{WIDTH}" for at in field.ticks.get("left", ()))
    yield _path("grid", rows)
    yield _path("grid", map(_upright, map(field.x, field.ticks["across"])))
    if not drawing["band"]:
        return
    picked = drawing["selected"]
    yield _path("gate", (_upright(field.x(at)) for at in drawing["gates"] if at != picked))
    if picked is not None:
        yield _path("picked", [_upright(field.x(picked))])
    yield _path(
        "gap",
        (
            f"M{field.x(at)} {field.y('left', pool)}V{field.y('left', heldout)}"
            for at, pool, heldout in drawing["gaps"]
        ),
    )


def _lines(drawing: Mapping[str, Any], field: Field) -> Iterator[str]:
    """Intervals and envelopes, lines, and the points that count one by one."""
    places = [field.x(at) for at in drawing["x"]]
    interval = [("band", "left", drawing["band"])] if drawing["band"] else []
    envelopes = [
        (f"about {line['colour']}", line["axis"], (line["low"], line["high"]))
        for line in drawing["lines"]
        if "low" in line
    ]
    for name, side, edges in interval + envelopes:
        low, high = (field.points(side, places, edge) for edge in edges)
        if low:
            yield f'<path class="{name}" d="{_joined([*low, *reversed(high)])}z"/>'
    for line in drawing["lines"]:
        points = field.points(line["axis"], places, line["values"])
        yield _stroke(line, _joined(points))
        if line["marks"] or len(points) == 1:
            yield _path(f"points {line['colour']}", (f"M{x} {y}h0" for x, y in points))


def _words(drawing: Mapping[str, Any], field: Field) -> Iterator[str]:
    """Ticks and the names of the axes; what is shaded, and what held-out picked."""
    across = field.across.part
    for at in field.ticks["across"]:
        name = "" if at in field.ticks["phone"] else "wide"
        yield _text((across(at), 1), (0, 15), _tick(at, ""), "middle", name)
    yield _text((0.5, 1), (0, 40), drawing["x_label"], "middle")
    for side, scale in field.up.items():
        line = _first(drawing, side)
        edge, anchor, gap = (1, "start", 5) if side == "right" else (0, "end", -5)
        colour = line["colour"] if side == "right" else ""
        for at in field.ticks[side]:
            place = edge, 1 - scale.part(at)
            yield _text(place, (gap, 4), _tick(at, line["unit"]), anchor, colour)
    for label, first, last in drawing["shades"]:
        begin, end = max(0.0, across(first)), min(1.0, across(last))
        if (end - begin) * field.width > _DIGIT_PX * len(label):
            yield _text((begin, 0), (4, 13), label)
    picked = drawing["selected"]
    if picked is not None and drawing["band"]:
        room = (1 - across(picked)) * field.width > _SELECTED_PX
        right, anchor = (6, "start") if room else (-6, "end")
        yield _text((across(picked), 1), (right, -8), "selected", anchor, "b")


def _first(drawing: Mapping[str, Any], side: str) -> Mapping[str, Any]:
    """The line that gives an axis its unit and its colour."""
    found: Mapping[str, Any] = next(line for line in drawing["lines"] if line["axis"] == side)
    return found


def _unit(drawing: Mapping[str, Any], side: str) -> str:
    """What stands along an axis; shares bear theirs at each tick."""
    unit: str = _first(drawing, side)["unit"]
    return "" if unit == "share" else unit


def _key(line: Mapping[str, Any]) -> str:
    """What a line looks like, and its name."""
    point = _path(f"points {line['colour']}", ["M17 5h0"]) if line["marks"] else ""
    sample = f'<svg width="35" height="9">{_stroke(line, "M0 5h35")}{point}</svg>'
    return f"<span>{sample} {escape(line['label'])}</span>"


def _stroke(line: Mapping[str, Any], path: str) -> str:
    dash = f' stroke-dasharray="{" ".join(map(str, line["dash"]))}"' if line["dash"] else ""
    name = f"line {line['colour']}" + (" rare" if line["marks"] else "")
    return f'<path class="{name}"{dash} d="{path}"/>' if path else ""


def _joined(points: Sequence[tuple[int, int]]) -> str:
    """A path through points, each told by its distance from the one before: half of the bytes."""
    if not points:
        return ""
    steps = (f"{x - a} {y - b}" for (a, b), (x, y) in pairwise(points))
    return f"M{points[0][0]} {points[0][1]}l0 0 {' '.join(steps)}"


def _upright(x: int) -> str:
    return f"M{x} 0v{HEIGHT}"


def _path(name: str, pieces: Iterable[str]) -> str:
    joined = "".join(pieces)
    return f'<path class="{name}" d="{joined}"/>' if joined else ""


def _text(
    at: tuple[float, float],
    from_there: tuple[int, int],
    text: str,
    anchor: str = "start",
    name: str = "",
) -> str:
    """A word at shares of the field's width and height, so many pixels right and down of it."""
    (x, y), (right, down) = at, from_there
    called = f' class="{name}"' if name else ""
    return (
        f'<text x="{x:.2%}" y="{y:.2%}" dx="{right}" dy="{down}" text-anchor="{anchor}"{called}>'
        f"{escape(text)}</text>"
    )


def _tick(value: float, unit: str) -> str:
    """As the browser's charts write it: ten digits drop what binary fractions add."""
    return f"{value * 100:.10g} %" if unit == "share" else f"{value:.10g}"
