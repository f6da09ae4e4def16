"""Pool up, held-out down."""

from __future__ import annotations

import pytest

from engine.contract.rl.guard import GuardConfig
from engine.verdict.inversion import find_inversion

GUARD = GuardConfig()


def solved(share: float, n: int = 200) -> list[bool]:
    """The first so many of n rows."""
    return [i < round(share * n) for i in range(n)]


def rising(steps: int, by: float) -> dict[int, float]:
    """A pool from 0.5 upwards, uneven as pools are."""
    return {s: 0.5 + by * s / steps + 0.01 * (-1) ** s for s in range(1, steps + 1)}


@pytest.mark.requirement("RL-06")
def test_a_pool_that_rises_while_heldout_falls_twice_is_an_inversion() -> None:
    """The published case: pool at 87 %, held-out at 6 %."""
    outcomes = {0: solved(0.5), 10: solved(0.6), 20: solved(0.4), 30: solved(0.2)}

    found = find_inversion(outcomes, rising(30, 0.37), GUARD)

    assert found is not None
    assert (found.best, found.step) == (10, 30)
    assert found.heldout_fall == pytest.approx(0.4)
    assert found.pool_rise > 0.15
    assert "since step 10 the pool rose by" in found.text()
    assert "held-out fell by 40.0" in found.text()


@pytest.mark.requirement("RL-06")
@pytest.mark.parametrize(
    ("outcomes", "pool_rise"),
    [
        ({0: 0.5, 10: 0.6, 20: 0.4}, 0.37),  # one bad gate may be bad luck
        ({0: 0.5, 10: 0.6, 20: 0.4, 30: 0.6}, 0.37),  # it came back
        ({0: 0.5, 10: 0.6, 20: 0.59, 30: 0.58}, 0.37),  # within chance
        ({0: 0.5, 10: 0.6, 20: 0.4, 30: 0.2}, 0.0),  # both fell: a collapse, not an inversion
        ({0: 0.5, 10: 0.6, 20: 0.7, 30: 0.8}, 0.37),  # learning
    ],
)
def test_what_is_no_inversion(outcomes: dict[int, float], pool_rise: float) -> None:
    """Held-out must be worse at every one of the last gates, and the pool better."""
    gates = {step: solved(share) for step, share in outcomes.items()}

    assert find_inversion(gates, rising(30, pool_rise), GUARD) is None


def test_the_pool_is_compared_with_the_pool_of_the_best_gates_own_weights() -> None:
    """A pool that rose before the best gate and stood still since has not risen."""
    outcomes = {0: solved(0.3), 10: solved(0.6), 20: solved(0.4), 30: solved(0.2)}
    pool = {s: (0.3 if s < 5 else 0.7) + 0.01 * (-1) ** s for s in range(1, 31)}

    assert find_inversion(outcomes, pool, GUARD) is None
