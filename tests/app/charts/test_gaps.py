"""What was measured and is no number is a gap: in the drawing, in its count, in tables and JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.charts import charts
from app.charts.panels import of_one
from tests.app.night import night, queue
from worker.attempt.ingest import NO_NUMBERS, fold
from worker.db.connection import Database
from worker.read.series import Curve, gaps_of


def measured(db: Database, series: str, values: list[Any]) -> None:
    """A run that measured these at steps 1, 2, 3, …; an engine writes NaN and inf as null."""
    queue(db)
    with night(db) as lane:
        attempt = lane.start()
        for step, value in enumerate(values, 1):
            attempt.write("metric", step=step, values={series: value, "train/loss": 1.0})
        attempt.finish()


@pytest.mark.parametrize("series", ["pool/score", "train/kl", "my/own"])
@pytest.mark.parametrize("lost", [None, True, "0.5", [0.5]])
def test_a_value_that_is_no_number_interrupts_its_line_and_is_counted(
    client: TestClient, db: Database, series: str, lost: Any
) -> None:
    """0.5, NaN, 0.6: two of three points."""
    measured(db, series, [0.5, lost, 0.6])

    drawn = client.get(f"/jobs/1/series.json?name={series}").json()
    values = client.get(f"/api/v1/jobs/1/metrics?series={series}").json()
    curve = client.get(f"/api/v1/jobs/1/metrics?series={series}&points=10").json()[series]
    table = client.get(f"/jobs/1/series?name={series}").text

    assert drawn["x"] == [1, 2, 3]
    assert drawn["lines"][0]["values"] == [0.5, None, 0.6]
    assert drawn["lines"][0]["gaps"] == [1]
    assert drawn["said"] == "2 of 3 points; 1 is not a number"
    assert values == {series: [[1, 0.5], [2, None], [3, 0.6]]}
    assert (curve["n"], curve["gaps"]) == (2, [[2, 2]])
    assert "not a number" in table


def test_a_series_of_nothing_but_gaps_is_told_where_it_is_asked_for(
    client: TestClient, db: Database
) -> None:
    """A loss that is NaN from the first step on is not one that nobody measured."""
    measured(db, "train/kl", [None, None])

    told = client.get("/api/v1/jobs/1/metrics").json()
    other = client.get("/api/v1/jobs/1/metrics?series=train/loss").json()

    assert told["train/kl"] == [[1, None]]
    assert set(other) == {"train/loss"}


def test_a_step_that_nobody_measured_is_no_gap(client: TestClient, db: Database) -> None:
    """Held-out is asked every ten steps: its line goes through."""
    measured(db, "pool/score", [0.5, 0.6])

    drawn = client.get("/jobs/1/series.json?name=pool/score").json()

    assert "gaps" not in drawn["lines"][0]
    assert drawn["said"] == "all 2 points"


def test_neighbours_are_one_gap_and_the_count_is_of_all(client: TestClient, db: Database) -> None:
    """Three in a row, and one at the end."""
    measured(db, "train/kl", [0.1, None, None, None, 0.2, None])

    drawn = client.get("/jobs/1/series.json?name=train/kl").json()

    assert drawn["x"] == [1, 2, 5, 6]
    assert drawn["lines"][0]["values"] == [0.1, None, 0.2, None]
    assert drawn["said"] == "2 of 6 points; 4 are not numbers"


def test_the_count_is_of_the_line_with_the_gap(client: TestClient, db: Database) -> None:
    """Not of the sound one beside it with the other one's gaps added."""
    queue(db)
    with night(db) as lane:
        attempt = lane.start()
        for step, lost in enumerate([0.1, None, 0.1], 1):
            attempt.write("metric", step=step, values={"train/kl": lost, "train/entropy": 0.4})
        attempt.finish()

    said = client.get("/jobs/1/charts/kl.json").json()["said"]

    assert said == "2 of 3 points; 1 is not a number"


def test_another_line_of_the_chart_goes_through(client: TestClient, db: Database) -> None:
    """Only the broken one has a gap; the page without scripts has it in its rows."""
    measured(db, "pool/score", [0.5, None, 0.6])

    lines = client.get("/jobs/1/charts/learning.json").json()["lines"]
    page = client.get("/jobs/1").text

    assert [line["label"] for line in lines if "gaps" in line] == ["pool (training prompts)"]
    assert "not a number" in page


def test_a_gate_that_is_no_number_interrupts_the_small_line_of_its_row(
    client: TestClient, db: Database
) -> None:
    """On the board; one gate between two gaps stays to be seen. A sound run's line goes through."""
    for scores in ([0.5, None, 0.6, None, 0.7, 0.8], [0.5, 0.6]):
        queue(db)
        with night(db) as lane:
            attempt = lane.start()
            for gate, score in enumerate(scores):
                attempt.write("gate", step=10 * gate, split="select", score=score, n=500)
            attempt.finish()

    whole, broken = client.get("/").text.split('class="spark"')[1:]

    assert (broken.count("<polyline"), whole.count("<polyline")) == (3, 1)
    assert "between 50.0 % and 80.0 %; 2 are not numbers" in broken
    assert "numbers" not in whole.split("</svg>")[0]


def test_in_a_stretch_of_steps_a_gap_is_one_that_spans_it() -> None:
    """Two stretches of four steps: what is lost within one has neighbours that stand for it."""
    columns = ([0, 8], [3, 11], [0.5, 0.6], [0.4, 0.5], [0.6, 0.7], [0.5, 0.6], [4, 4])
    curve = Curve(4, *columns, moments=[None, None])
    chart = of_one("kl")

    within = charts.drawing(chart, {"kl": curve}, broken={"kl": [(1, 2)]})
    between = charts.drawing(chart, {"kl": curve}, broken={"kl": [(4, 7)]})

    assert "gaps" not in within["lines"][0]
    assert (between["x"], between["lines"][0]["gaps"]) == ([3, 4, 11], [1])
    assert between["said"].startswith("2 of 12 points: each stands for 4 steps")
    assert between["said"].endswith("; 4 are not numbers")


def test_what_a_resumed_run_measures_anew_is_no_gap_any_more() -> None:
    """It goes on from step 2: what was lost at 3 is void, what was lost at 1 stays."""
    result: dict[str, Any] = {}
    for seq, step in enumerate((1, 2, 3, 4), 1):
        values = {"a": None if step in {1, 3, 4} else 0.5}
        event = {"seq": seq, "attempt": 1, "type": "metric", "step": step, "values": values}
        result = fold(result, event)
    started = {"seq": 5, "attempt": 2, "type": "started", "resumed_from": 2}

    assert gaps_of(result) == {"a": [(1, 1), (3, 4)]}
    assert gaps_of(fold(result, started)) == {"a": [(1, 1)]}


@pytest.mark.parametrize(
    "said", [None, 7, [], {"a": 3}, {"a": [[1]]}, {"a": [["x", 2]]}, {"a": [[True, 2]]}]
)
def test_a_result_that_says_it_otherwise_says_nothing(said: Any) -> None:
    """Of another version."""
    assert gaps_of({NO_NUMBERS: said}) == {}


def test_what_a_result_keeps_of_gaps_is_bounded() -> None:
    """A run of whose values every second one is NaN, and of a thousand series."""
    result: dict[str, Any] = {}
    for step in range(2, 1000, 2):
        values = {f"s{i}": None for i in range(60)}
        event = {"seq": step, "attempt": 1, "type": "metric", "step": step, "values": values}
        result = fold(result, event)

    assert len(json.dumps(result)) < 100_000
