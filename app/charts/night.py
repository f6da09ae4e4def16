"""A night on one axis: its window, what runs, what waits as bars, and the money along it.

Drawn on the server as small SVG whose x is in percent, so that every row shares the axis and takes
any width. Moments are Unix seconds, told in the zone of the page. Knows no job.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from markupsafe import Markup, escape

from app.text import wording

HOUR, DAY = 3600.0, 86400.0
LONGEST_S = 7 * DAY
"""What comes later stands beside the axis, in words."""
_SHORTEST_S = HOUR
_STEPS = (300, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
"""Seconds between two ticks."""
_MOST_TICKS = 14
_APART = 6.0
"""Percent that two labels keep between their middles."""
_BAR_Y, _BAR_H = -11, 22
"""Of a bar, from the middle of its row."""
_MONEY_H = 92
_ROOM = 1.35
"""The height of the money's drawing, in shares of the most that it shows."""
_GROUND = "night-ground"


@dataclass(frozen=True)
class Bar:
    """Something that takes the lane from one moment to another."""

    begins: float
    ends: float
    kind: str = "job"
    """job · guess: of unknown length · no: it does not run · done: what is behind of what runs."""
    words: str = ""
    """Inside of it, where there is room."""
    likely: tuple[float, float] | None = None
    """Between these it ends."""


@dataclass(frozen=True)
class Night:
    """The axis, from `begins` to `ends`."""

    begins: float
    ends: float
    now: float
    opens: float | None = None
    closes: float | None = None
    """Of the window; None where it is always open."""

    @classmethod
    def around(
        cls,
        now: float,
        *,
        runs: bool,
        opens: float | None,
        closes: float | None,
        last: float | None,
    ) -> Night:
        """One that shows the whole window, else what is foreseen up to `last`; of what `runs` some
        of the past too. A window that opens much later begins the axis.
        """
        end = max(now, last or now) if closes is None else closes
        end = min(end, now + LONGEST_S)
        first = now if runs or opens is None else max(now, min(opens, end) - HOUR)
        span = max(end - first, _SHORTEST_S)
        return cls(first - span / (12 if runs else 40), first + span * 1.08, now, opens, closes)

    def x(self, moment: float) -> float:
        """Where a moment stands, in percent of the width; what lies outside stands at the edge."""
        share = (moment - self.begins) / (self.ends - self.begins)
        return round(100 * min(max(share, 0.0), 1.0), 2)

    def clock(self, moment: float) -> str:
        """Its time of day; with the zone's letters in a night in which the clock changes."""
        changes = wording.zone(self.begins) != wording.zone(self.ends)
        return wording.hour(moment) + (f" {wording.zone(moment)}" if changes else "")

    def head(self) -> Markup:
        """The hours, those of the window first; and the ground that every row shows again."""
        shown: list[float] = []
        drawn = ""
        for moment, name in self._labels():
            at = self.x(moment)
            if any(abs(at - other) < _APART for other in shown):
                continue
            shown.append(at)
            anchor = "start" if at < 2 else "end" if at > 98 else "middle"
            told = escape(self._named(moment))
            drawn += f'<text class="{name}" x="{at}%" y="16" text-anchor="{anchor}">{told}</text>'
        ground = f'<defs><g id="{_GROUND}">{self._ground}</g></defs>'
        return _svg("t", 'aria-hidden="true"', ground + drawn)

    def row(self, bars: Sequence[Bar], words: str) -> Markup:
        """The bars of one job; `words` say the same."""
        drawn = "".join(self._bar(bar) for bar in bars)
        said = f'role="img" aria-label="{escape(words)}"' if bars else 'aria-hidden="true"'
        middle = f'<svg y="50%" width="100%" height="1">{drawn}</svg>' if drawn else ""
        return _svg("t", said, f'<use href="#{_GROUND}"/>{middle}')

    def money(self, points: Sequence[tuple[float, float]], cap: float | None, words: str) -> Markup:
        """What is spent by when, under the cap."""
        top = _ROOM * max(cap or 0.0, points[-1][1] if points else 0.0) or 1.0
        line = [(self.x(at), 1 - usd / top) for at, usd in self._whole(points)]
        path = "M" + "L".join(f"{10 * x:.1f} {1000 * y:.1f}" for x, y in line)
        area = f"{path}L{10 * line[-1][0]:.1f} 1000L{10 * line[0][0]:.1f} 1000Z" if line else ""
        drawn = f'<use href="#{_GROUND}"/>'
        if line:
            drawn += (
                f'<svg width="100%" height="{_MONEY_H}" viewBox="0 0 1000 1000" '
                f'preserveAspectRatio="none"><path class="spb" d="{area}"/>'
                f'<path class="sp" d="{path}"/></svg>'
            )
        if cap is not None:
            spent = bool(points) and points[0][1] >= cap
            drawn += self._cap(cap, _MONEY_H * (1 - cap / top), spent=spent)
        drawn += self._sums(points, top)
        return _svg("t", f'role="img" aria-label="{escape(words)}"', drawn)

    def _whole(self, points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """The line to the end of the window, where nothing more is spent."""
        if not points or self.closes is None or points[-1][0] >= self.closes:
            return list(points)
        return [*points, (self.closes, points[-1][1])]

    def _cap(self, cap: float, y: float, *, spent: bool) -> str:
        """Its line, named above it, or below where what is spent stands above."""
        left = self.x(self.begins if self.opens is None else self.opens)
        return (
            f'<line class="cap" x1="{left}%" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="red" x="{left}%" dx="6" y="{y + (14 if spent else -5):.1f}">'
            f"cap of the night {wording.dollars(cap)}</text>"
        )

    def _sums(self, points: Sequence[tuple[float, float]], top: float) -> str:
        """What it has come to where a job ends; a narrow screen shows the last alone."""
        steps = [after for before, after in pairwise(points) if after[1] > before[1]]
        drawn, free = "", 101.0
        for at, usd in reversed(steps):
            x, y = self.x(at), _MONEY_H * (1 - usd / top)
            drawn += f'<circle cx="{x}%" cy="{y:.1f}" r="2.5"/>'
            if free - x < 8:
                continue
            name, below = "in" if free > 100 else "in minor", y + 15 < _MONEY_H
            told = f'dx="5" y="{y + 15:.1f}"' if below else f'dy="-7" y="{y:.1f}"'
            drawn += f'<text class="{name}" x="{x}%" {told}>${usd:.2f}</text>'
            free = x
        return drawn

    def _bar(self, bar: Bar) -> str:
        left, right = self.x(bar.begins), self.x(bar.ends)
        width = max(round(right - left, 2), 0.15)
        drawn = (
            f'<rect class="{bar.kind}" x="{left}%" width="{width}%" y="{_BAR_Y}" '
            f'height="{_BAR_H}" rx="3"/>'
        )
        if bar.likely is not None and bar.likely[0] < self.ends:
            low, high = (self.x(moment) for moment in bar.likely)
            drawn += f'<line class="maybe" x1="{low}%" x2="{high}%" y1="0" y2="0"/>' + "".join(
                f'<line class="maybe" x1="{end}%" x2="{end}%" y1="-4" y2="4"/>'
                for end in (low, high)
            )
        if bar.words and width > 6:
            name = "in" if width > 16 else "in minor"
            drawn += f'<text class="{name}" x="{left}%" dx="7" y="4">{escape(bar.words)}</text>'
        return drawn

    @cached_property
    def _ground(self) -> str:
        """The window, the hours and now, behind every bar.

        Shown again by `use`, where a style finds nothing by what stands around it.
        """
        drawn = ""
        edges = [at for at in (self.opens, self.closes) if at is not None]
        if self.opens is not None and self.closes is not None:
            left, right = self.x(self.opens), self.x(self.closes)
            wide = f'width="{right - left:.2f}%" height="100%"'
            drawn = f'<rect class="night-win" x="{left}%" y="0" {wide}/>'
        lines = [("night-hour", tick) for tick in self._ticks]
        lines += [("night-edge", at) for at in edges if self._within(at)]
        lines += [("night-now", self.now)] if self._within(self.now) else []
        return drawn + "".join(
            f'<line class="{name}" x1="{self.x(at)}%" x2="{self.x(at)}%" y1="0" y2="100%"/>'
            for name, at in lines
        )

    def _labels(self) -> Iterator[tuple[float, str]]:
        """(moment, class) of all that may be named, the most wanted first."""
        for edge in (self.opens, self.closes):
            if edge is not None and self._within(edge):
                yield edge, "win-t"
        if self._within(self.now):
            yield self.now, "now-t"
        for index, tick in enumerate(self._ticks):
            yield tick, "major" if index % 3 == 1 else "minor"

    def _named(self, moment: float) -> str:
        far = self.ends - self.begins > 1.1 * DAY
        return wording.weekday(moment) if far and _of_day(moment) == 0 else wording.hour(moment)

    def _within(self, moment: float) -> bool:
        return self.begins < moment < self.ends

    @cached_property
    def _ticks(self) -> list[float]:
        """Round hours of the clock on the wall."""
        span = self.ends - self.begins
        step = next((one for one in _STEPS if span / one <= _MOST_TICKS), _STEPS[-1])
        look = min(step, 900)  # a zone's clock differs from UTC by quarters of an hour
        first = int(self.begins // look) + 1
        moments = (n * look for n in range(first, int(self.ends // look) + 1))
        return [float(at) for at in moments if _of_day(at) % step == 0]


def _of_day(moment: float) -> int:
    """Seconds of the day that the clock shows."""
    zone = wording.told_in()
    local = datetime.datetime.fromtimestamp(moment, zone)
    return local.hour * 3600 + local.minute * 60 + local.second


def _svg(name: str, attributes: str, drawn: str) -> Markup:
    """Numbers and words of this file, and what was escaped."""
    return Markup(f'<svg class="{name}" {attributes}>{drawn}</svg>')  # noqa: S704
