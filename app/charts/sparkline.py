"""A small line in a table row: a few values as the points of an SVG, and the same in words.

Drawn on the server: fifty rows need no script and no request of their own. Knows no job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.text import wording

WIDTH, HEIGHT = 104, 26
_EDGE = 3
_LEAST_SPAN = 0.1
"""Of a share of one: noise of a point must not look like a climb."""
_MOST_POINTS = 60


@dataclass(frozen=True)
class Sparkline:
    """What the template draws, in the coordinates of its view box."""

    points: str
    """`x,y` pairs of the polyline."""
    last: tuple[float, float]
    """Where the newest value stands."""
    first_y: float
    """Height of the first value: what the rest is held against."""
    words: str
    """The line for those who do not see it."""


def sparkline(values: Sequence[tuple[int, float]]) -> Sparkline | None:
    """A line through (step, share) pairs; None for fewer than two, which are no line.

    >>> sparkline([(0, 0.5), (10, 0.6)]).words
    '50.0 % at step 0, 60.0 % at step 10; between 50.0 % and 60.0 %'
    """
    if len(values) < 2:
        return None
    shown = _thinned(values)
    shares = [share for _, share in values]
    low, high = min(shares), max(shares)
    spare = max(0.0, _LEAST_SPAN - (high - low)) / 2
    first_step, last_step = values[0][0], values[-1][0]

    def place(step: int, share: float) -> tuple[float, float]:
        across = (step - first_step) / max(1, last_step - first_step)
        up = (share - low + spare) / max(_LEAST_SPAN, high - low)
        return (
            round(_EDGE + across * (WIDTH - 2 * _EDGE), 1),
            round(HEIGHT - _EDGE - up * (HEIGHT - 2 * _EDGE), 1),
        )

    placed = [place(step, share) for step, share in shown]
    return Sparkline(
        points=" ".join(f"{x:g},{y:g}" for x, y in placed),
        last=placed[-1],
        first_y=placed[0][1],
        words=(
            f"{wording.percent(shares[0])} at step {first_step}, "
            f"{wording.percent(shares[-1])} at step {last_step}; "
            f"between {wording.percent(low)} and {wording.percent(high)}"
        ),
    )


def _thinned(values: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """Every n-th value and the last one: the row is a hundred pixels wide."""
    stride = -(-len(values) // _MOST_POINTS)
    kept = list(values[::stride])
    return kept if kept[-1] == values[-1] else [*kept, values[-1]]
