"""From where to where an axis reaches, whatever a run measured."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.charts import charts
from app.charts.panels import CHARTS
from worker.read.series import Curve

ANY = st.floats(-1e300, 1e300, allow_nan=False)
VALUES = st.floats(-1e12, 1e12, allow_nan=False) | st.integers(-5, 5).map(float)


def drawing(name: str = "learning", **columns: dict[int, float]) -> dict[str, Any]:
    """One of a run's charts; `columns`: values by their step, of its series one after the other."""
    chart = CHARTS[name]
    curves = {
        series: Curve.of_values(tuple(values), tuple(values.values()), (None,) * len(values))
        for series, values in zip(chart.series, columns.values(), strict=False)
        if values
    }
    return charts.drawing(chart, curves, selected_step=4)


@given(
    st.sampled_from(sorted(CHARTS)),
    st.lists(
        st.dictionaries(st.integers(0, 10**9), ANY | VALUES, max_size=6), min_size=1, max_size=4
    ),
)
@example("learning", [{}, {}, {5: 0.1}, {5: 0.2}])
@example("learning", [{1: 5e-324, 2: 5e-324}])
def test_an_axis_has_two_ends_whatever_was_measured(
    name: str, columns: list[dict[int, float]]
) -> None:
    """Numbers that JSON can hold, the lower one first."""
    rising = {str(place): dict(sorted(values.items())) for place, values in enumerate(columns)}

    made = json.loads(charts.encoded(drawing(name, **rising)))

    assert all(low < high for low, high in made["ends"].values())


@pytest.mark.parametrize("apart", [0.0, 1e-12, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-3])
@pytest.mark.parametrize("size", [0.5, -3.7, 1e-12, 7.3e9, 5e-324, 1e289])
@pytest.mark.parametrize(("name", "series"), [("learning", "pool"), ("stage2_loss", "ce")])
def test_a_line_is_seen_however_little_its_values_differ(
    name: str, series: str, size: float, apart: float
) -> None:
    """Also as the browser reads it, with seven digits: between the ends of its axis."""
    made = json.loads(charts.encoded(drawing(name, **{series: {1: size, 2: size * (1 + apart)}})))

    (low, high) = made["ends"]["left"]
    assert low < high
    assert all(low <= value <= high for value in made["lines"][0]["values"])


def test_shares_end_on_round_fifths() -> None:
    """So that the picture does not jump with each new value."""
    assert drawing(pool={0: 0.25, 2: 0.5, 4: 0.75})["ends"]["left"] == [0.2, 0.8]


@pytest.mark.parametrize("values", [(0.2, 1.4), (-0.3, 0.4), (-5.0, 7.0)])
def test_a_share_that_is_none_is_drawn_and_not_cut_off(values: tuple[float, float]) -> None:
    """An entropy over a floor, a reward of another scale: the axis goes as far as they do."""
    made = drawing(pool=dict(enumerate(values)))

    low, high = made["ends"]["left"]
    assert low <= values[0] < values[1] <= high
