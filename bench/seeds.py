"""`python -m bench.seeds`: what two seed groups can show, and what pooled rows would say.

Draws the scores of groups whose seeds spread by 4 points, and calls a difference once between runs
(`engine.contract.between_runs`) and once over the rows of all runs together, which the product
never does. Exit code 1 when the former is wrong more often than its level and chance allow.
"""

from __future__ import annotations

import math
import statistics
import sys

import numpy as np

from engine.contract.between_runs import Spread, spread, welch

SPREAD = 0.04
"""Standard deviation between seeds."""
ROWS = 500
WORLDS = 2000
ALPHA = 0.05
MOST_WRONG = 0.06
EFFECTS = (0.0, 0.05, 0.10)


def main() -> int:
    """Print a table; runs a group, share called different, and the difference that can be shown."""
    print(f"seed 1, {WORLDS} pairs a cell, {ROWS} rows a run, seeds spread by {SPREAD:.0%}")
    print("runs  true difference  between runs  rows pooled  can show (median)")
    wrong = 0.0
    for runs in (2, 3, 5, 10):
        for effect in EFFECTS:
            between, pooled, shows = simulate(runs, effect)
            wrong = max(wrong, between if effect == 0 else 0.0)
            print(f"{runs:4} {effect:16.0%} {between:13.1%} {pooled:12.1%} {shows:18.1%}")
    return int(wrong > MOST_WRONG)


def simulate(runs: int, effect: float) -> tuple[float, float, float]:
    """Shares of pairs called different by either test, and the median of what could be shown."""
    draw = np.random.default_rng(1)
    between, pooled, shows = 0, 0, []
    for _ in range(WORLDS):
        first, second = (_scores(draw, 0.65 + shift, runs) for shift in (0.0, effect))
        found = welch(spread(first), spread(second))
        if found is not None:
            between += found.p_value < ALPHA
            shows.append(found.shows)
        pooled += _pooled(spread(first), spread(second))
    return between / WORLDS, pooled / WORLDS, statistics.median(shows)


def _scores(draw: np.random.Generator, mean: float, runs: int) -> list[float]:
    true = np.clip(draw.normal(mean, SPREAD, runs), 0, 1)
    return [float(score) for score in draw.binomial(ROWS, true) / ROWS]


def _pooled(a: Spread, b: Spread) -> bool:
    """The test of two proportions, as if the rows of all runs were draws of their own."""
    both = (a.mean + b.mean) / 2
    error = math.sqrt(2 * both * (1 - both) / (a.n * ROWS))
    return abs(b.mean - a.mean) > 1.96 * error


if __name__ == "__main__":
    sys.exit(main())
