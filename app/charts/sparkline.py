"""A small line in a table row: a few values as the points of an SVG, and the same in words.

Drawn on the server: fifty rows need no script and no request of their own. Knows no job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from app.text import wording

WIDTH, HEIGHT = 104, 26
_EDGE = 3
_LEAST_SPAN = 0.1
"""Of a share of one: noise of a point must not look like a climb."""
_MOST_POINTS = 60


@dataclass(frozen=True)
class Sparkline:
    """What the template draws, in the coordinates of its view box."""

    lines: tuple[str, ...]
    """`x,y` pairs of each polyline: one where nothing interrupts it."""
    last: tuple[float, float]
    """Where the newest value stands."""
    first_y: float
    """Height of the first value: what the rest is held against."""
    words: str
    """The line for those who do not see it."""


def sparkline(
    values: Sequence[tuple[int, float]], gaps: Sequence[tuple[int, int]] = ()
) -> Sparkline | None:
    """A line through (step, share) pairs; None for fewer than two, which are no line.

    `gaps`: from which step to which what was measured is no number; the line is interrupted there.

    >>> sparkline([(0, 0.5), (10, 0.6)]).words
    '50.0 % at step 0, 60.0 % at step 10; between 50.0 % and 60.0 %'
    """
    if len(values) < 2:
        return None
    shares = [share for _, share in values]
    low, high = min(shares), max(shares)
    spare = max(0.0, _LEAST_SPAN - (high - low)) / 2
    first_step, last_step = values[0][0], values[-1][0]

    def place(step: int, share: float) -> str:
        across = (step - first_step) / max(1, last_step - first_step)
        up = (share - low + spare) / max(_LEAST_SPAN, high - low)
        x = round(_EDGE + across * (WIDTH - 2 * _EDGE), 1)
        y = round(HEIGHT - _EDGE - up * (HEIGHT - 2 * _EDGE), 1)
        return f"{x:g},{y:g}"

    placed = [[place(*value) for value in _thinned(line)] for line in _between(values, gaps)]
    left, last_y = placed[-1][-1].split(",")
    lost = sum(last - first + 1 for first, last in gaps)
    return Sparkline(
        # One value between two gaps is a line to itself: its round ends make it a dot.
        lines=tuple(" ".join(line * 2 if len(line) == 1 else line) for line in placed),
        last=(float(left), float(last_y)),
        first_y=float(placed[0][0].split(",")[1]),
        words=(
            f"{wording.percent(shares[0])} at step {first_step}, "
            f"{wording.percent(shares[-1])} at step {last_step}; "
            f"between {wording.percent(low)} and {wording.percent(high)}"
            f"{wording.no_numbers(lost)}"
        ),
    )


def _between(
    values: Sequence[tuple[int, float]], gaps: Sequence[tuple[int, int]]
) -> list[list[tuple[int, float]]]:
    """The values in lines: a gap between two neighbours begins the next one."""
    lines = [[values[0]]]
    for (before, _), value in pairwise(values):
        if any(before < first and last < value[0] for first, last in gaps):
            lines.append([])
        lines[-1].append(value)
    return lines


def _thinned(values: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """Every n-th value and the last one: the row is a hundred pixels wide."""
    stride = -(-len(values) // _MOST_POINTS)
    kept = list(values[::stride])
    return kept if kept[-1] == values[-1] else [*kept, values[-1]]


PAIR_WIDTH, PAIR_HEIGHT = 72, 18
_INSET = 1.5


@dataclass(frozen=True)
class Pair:
    """Held-out and pool of one run on one small drawing, as paths of an SVG."""

    heldout: str
    pool: str
    last: tuple[float, float] | None
    words: str


@lru_cache(maxsize=4_000)
def pair_of_lines(
    heldout: tuple[tuple[int, float], ...], pool: tuple[tuple[int, float], ...]
) -> Pair | None:
    """Lines through (step, share) pairs on one pair of axes; None where neither has two points.

    >>> pair_of_lines(((0, 0.5), (10, 0.6)), ()).words
    'held-out 50.0 % to 60.0 % over 2 gates'
    """
    every = [*heldout, *pool]
    if max(len(heldout), len(pool)) < 2:
        return None
    first, last = min(step for step, _ in every), max(step for step, _ in every)
    low, high = min(share for _, share in every), max(share for _, share in every)

    def place(step: int, share: float) -> tuple[float, float]:
        across = (step - first) / max(1, last - first)
        up = (share - low) / max(_LEAST_SPAN, high - low)
        return (
            round(_INSET + across * (PAIR_WIDTH - 2 * _INSET), 1),
            round(PAIR_HEIGHT - _INSET - up * (PAIR_HEIGHT - 2 * _INSET), 1),
        )

    def path(values: Sequence[tuple[int, float]]) -> str:
        return "M" + "L".join(
            f"{x:g} {y:g}" for x, y in (place(*value) for value in _thinned(values))
        )

    gates = f"over {len(heldout)} gates" if len(heldout) > 1 else "at one gate"
    words = (
        f"held-out {wording.percent(heldout[0][1])} to {wording.percent(heldout[-1][1])} {gates}"
        if heldout
        else f"pool {wording.percent(pool[0][1])} to {wording.percent(pool[-1][1])}"
    )
    return Pair(
        heldout=path(heldout) if len(heldout) > 1 else "",
        pool=path(pool) if len(pool) > 1 else "",
        last=place(*heldout[-1]) if heldout else None,
        words=words,
    )
