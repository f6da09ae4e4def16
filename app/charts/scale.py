"""The scale: a base as a hollow ring, a result as a dot, its 95 % interval as a whisker.

One axis is shared by every row of a page. Drawn on the server as small SVG whose x is in percent:
rows need no script and take any width. Knows no run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from markupsafe import Markup, escape

from worker.read.runs.run import Change

_STEPS = (1, 2, 5, 10, 20, 25, 50, 100)
"""Points between two ticks."""
_MOST_TICKS = 3
_EDGE = 5.0
"""Percent of the width that stay free at either end."""
_OVER = 0.05
"""Share of the axis by which a mark may pass its end."""


@dataclass(frozen=True)
class Scale:
    """An axis of differences in points; zero is the base."""

    low: float
    high: float
    ticks: Sequence[float]
    """Beside zero."""

    @classmethod
    def of(cls, changes: Iterable[Change]) -> Scale:
        """One that holds every interval, and zero."""
        ends = [0.0]
        for change in changes:
            ends += [
                100 * (change.lift if end is None else end) for end in (change.low, change.high)
            ]
        low, high = min(ends), max(ends)
        if high - low < 1:
            low, high = low - 1, high + 1
        step = next((s for s in _STEPS if (high - low) / s <= _MOST_TICKS), _STEPS[-1])
        first, last = int(low // step), int(-(-high // step))
        return cls(
            low, high, [n * step for n in range(first, last + 1) if n and low <= n * step <= high]
        )

    def x(self, points: float) -> str:
        """Where a value stands, in percent of the width."""
        share = (points - self.low) / (self.high - self.low)
        share = min(max(share, -_OVER), 1 + _OVER)  # the interval of two runs may be endless
        return f"{_EDGE + share * (100 - 2 * _EDGE):.1f}%"

    def head(self) -> Markup:
        """The axis in the head of a table."""
        named = [(0.0, "base"), *((tick, f"{tick:+g}".replace("-", "−")) for tick in self.ticks)]
        texts = "".join(
            f'<text x="{self.x(at)}" y="14" text-anchor="middle">{words}</text>'
            for at, words in named
        )
        return _svg('aria-hidden="true"', texts)

    def mark(self, change: Change | None, verdict: str, words: str) -> Markup:
        """One result; without one the axis alone."""
        if change is None:
            return _svg('aria-hidden="true"', self._axis)
        drawn = f'{self._axis}<circle class="ring" cx="{self.x(0)}" cy="50%" r="2.5"/>'
        if change.low is not None and change.high is not None:
            low, high = self.x(100 * change.low), self.x(100 * change.high)
            drawn += f'<line class="wh" x1="{low}" x2="{high}" y1="50%" y2="50%"/>'
        drawn += f'<circle class="dot" cx="{self.x(100 * change.lift)}" cy="50%" r="3.5"/>'
        said = f'data-v="{escape(verdict)}" role="img" aria-label="{escape(words)}"'
        return _svg(said, drawn)

    @cached_property
    def _axis(self) -> str:
        """Zero and the ticks, behind every mark."""
        lines = [("grid", tick) for tick in self.ticks] + [("zero", 0.0)]
        return "".join(
            f'<line class="{name}" x1="{self.x(at)}" x2="{self.x(at)}" y1="0" y2="100%"/>'
            for name, at in lines
        )


def _svg(attributes: str, drawn: str) -> Markup:
    """Numbers and words of this file, and what was escaped."""
    return Markup(f'<svg class="scale" {attributes}>{drawn}</svg>')  # noqa: S704
