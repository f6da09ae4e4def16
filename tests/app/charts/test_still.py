"""The charts as the server draws them: what a run's page shows before any script runs."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from app.charts import charts
from app.charts.panels import CHARTS
from app.charts.still import HEIGHT, WIDTH, Scale, still
from tests.app.night import night, queue
from worker.db.connection import Database
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


def paths(text: str, name: str) -> list[str]:
    """The `d` of all paths of a class, those of the legend left out."""
    field = text.partition('<p class="legend">')[0]
    return re.findall(rf'<path class="{name}"[^>]* d="([^"]*)"', field)


@pytest.mark.requirement("UI-02")
def test_a_line_goes_through_its_values() -> None:
    """From the lower left to the upper right; the axis ends on round fifths of a share."""
    drawn = still(drawing(pool={0: 0.25, 2: 0.5, 4: 0.75}), 1080, 300)

    assert paths(drawn, "line a") == [
        f"M0 {round(HEIGHT * 11 / 12)}l0 0 "  # from 20 % to 80 %
        f"{WIDTH // 2} {round(HEIGHT / 2) - round(HEIGHT * 11 / 12)} "
        f"{WIDTH // 2} {round(HEIGHT / 12) - round(HEIGHT / 2)}"
    ]
    assert re.findall(r'text-anchor="end">([^<]+)<', drawn) == [
        "20 %", "30 %", "40 %", "50 %", "60 %", "70 %", "80 %",
    ]  # fmt: skip


def test_held_out_has_points_and_gates_and_what_it_picked() -> None:
    """Each gate is a point and a thin line; the step that held-out picked is told by a word."""
    drawn = still(drawing(pool={0: 0.5, 2: 0.6, 4: 0.7}, heldout={0: 0.5, 4: 0.6}), 1080, 300)

    (points,) = paths(drawn, "points b")
    assert points.count("h0") == 2
    assert paths(drawn, "gate") == [f"M0 0v{HEIGHT}"]
    assert paths(drawn, "picked") == [f"M{WIDTH} 0v{HEIGHT}"]
    assert ">selected<" in drawn


def test_one_value_is_a_point_and_none_is_nothing() -> None:
    """A line through one point is none."""
    assert paths(still(drawing(pool={3: 0.5}), 1080, 300), "points a")
    assert still(drawing(), 1080, 300) == ""


def test_a_word_of_a_run_stays_a_word() -> None:
    """What an engine calls its values is no markup."""
    odd = drawing(pool={0: 0.5, 2: 0.6})
    odd["lines"][0]["label"] = odd["x_label"] = odd["said"] = "<b>"

    assert "<b>" not in still(odd, 1080, 300)


@given(
    st.sampled_from(sorted(CHARTS)),
    st.lists(
        st.dictionaries(st.integers(0, 10**9), ANY | VALUES, max_size=6), min_size=1, max_size=4
    ),
)
@example("learning", [{}, {}, {5: 0.1}, {5: 0.2}])
@example("learning", [{1: 5e-324, 2: 5e-324}])
def test_any_values_can_be_drawn(name: str, columns: list[dict[int, float]]) -> None:
    """Every place is a number."""
    rising = {str(place): dict(sorted(values.items())) for place, values in enumerate(columns)}

    drawn = still(drawing(name, **rising), 480, 220)

    places = re.findall(r' (?:d|x|y)="([^"]*)"', drawn)
    assert not re.search(r"nan|inf|e\+", "".join(places))


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


@pytest.mark.parametrize("values", [(0.2, 1.4), (-0.3, 0.4), (-5.0, 7.0)])
def test_a_share_that_is_none_is_drawn_and_not_cut_off(values: tuple[float, float]) -> None:
    """An entropy over a floor, a reward of another scale: the axis goes as far as they do."""
    made = drawing(pool=dict(enumerate(values)))

    low, high = made["ends"]["left"]
    assert low <= values[0] < values[1] <= high


@given(VALUES, VALUES, st.booleans())
def test_ticks_are_round_and_lie_between_the_ends(one: float, other: float, whole: bool) -> None:
    """Never so close that their words touch, and at least the ends of a whole step fit in."""
    low, high = min(one, other), max(one, other)
    if high - low < max(1e-9 * max(abs(low), abs(high)), 1e-9):
        high = low + max(1.0, abs(low))
    scale = Scale(low, high)

    ticks = scale.ticks(480, 50, (1, 2, 5), whole=whole)

    slack = (high - low) * 1e-6
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    apart = [(after - before) / (high - low) * 480 for before, after in pairwise(ticks)]
    assert all(px >= 49.9 for px in apart)


@pytest.fixture
def job_id(db: Database) -> int:
    """Of a run of a few steps."""
    made = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        for step in range(1, 6):
            attempt.step(step, step / 10, {"train/kl": 0.1, "train/entropy": 0.4})
        attempt.finish()
    return made


@pytest.mark.requirement("UI-02")
def test_a_page_brings_its_charts_drawn_and_its_live_part_does_not(
    client: TestClient, job_id: int
) -> None:
    """What follows by the stream is drawn by the browser; so is a smoothed line."""
    address = f"/jobs/{job_id}"

    assert client.get(address).text.count('class="still"') == 2
    assert 'class="still"' not in client.get(address, params={"part": "live"}).text
    assert 'class="still"' not in client.get(address, params={"smooth": "0.6"}).text
