"""What a run page draws, and the curves that REST answers with."""

from __future__ import annotations

import json
import random
import re

import pytest
from starlette.testclient import TestClient

from app.charts import charts
from app.charts.charts import Column
from tests.app.night import Attempt, night, queue
from worker.db.connection import Database
from worker.read import series
from worker.read.series import Steps


def _steps(attempt: Attempt, first: int, last: int) -> None:
    for step in range(first, last + 1):
        values = {"pool/score": step / 5000, "train/kl": 0.1 * step, "train/entropy": 0.4}
        attempt.add("metric", step=step, values=values)
    attempt.write("progress", phase="training", step=last, max_steps=last)


@pytest.mark.requirement("UI-02")
def test_a_page_names_the_columns_of_each_chart_and_has_it_as_a_table(
    client: TestClient, db: Database
) -> None:
    """For who runs no script, of the same part; a live part, which scripts ask for, has none."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        _steps(attempt, 1, 30)
        attempt.finish()
    asked = (("", 30, 16), ("smooth=0.9", 30, 16), ("axis=time&from=10&to=20", 11, 11))
    for query, points, rows in asked:
        page = client.get(f"/jobs/{job_id}?{query}").text
        addresses = re.findall(r'data-chart="([^"]+)" data-follows-address', page)
        assert addresses[:2] == [
            f"/jobs/{job_id}/charts/learning.json?points=1000",
            f"/jobs/{job_id}/charts/kl.json?points=500",
        ]
        for address in addresses[:2]:
            assert len(client.get(f"{address}&{query}").json()["x"]) == points
        assert tables(page) == [rows, rows]

    assert tables(client.get(f"/jobs/{job_id}?part=live").text) == []
    assert tables(client.get(f"/jobs/{job_id}?tab=log").text) == []


def tables(page: str) -> list[int]:
    """Of each table that is there without scripts, how many rows it has."""
    without = re.findall(r'<noscript>\s*<div class="scroll".*?</noscript>', page, re.DOTALL)
    return [table.count('<th scope="row"') for table in without]


def test_a_drawing_is_written_as_json_writes_it_with_seven_digits() -> None:
    """Steps in full, whatever their size; no value where there is none."""
    drawing = {
        "x": [1, 2_147_483_647],
        "lines": [{"label": 'a "name" </script>', "values": Column([1 / 3, None])}],
        "band": [Column([1e-9, -2.5e20]), Column()],
        "shades": [],
        "selected": None,
    }

    assert json.loads(charts.encoded(drawing)) == {
        **drawing,
        "lines": [{"label": 'a "name" </script>', "values": [0.3333333, None]}],
    }


@pytest.mark.requirement("UI-02")
def test_a_chart_beside_another_has_half_the_points_and_keeps_every_spike(
    client: TestClient, db: Database
) -> None:
    """Two stored stretches are one point there, with the lowest and the highest of both."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        chance = random.Random(1)
        scores = [chance.random() for _ in range(6000)]
        scores[4321], scores[17] = 9.0, -9.0
        for step, score in enumerate(scores):
            attempt.add("metric", step=step, values={"train/kl": score})
        attempt.finish()

    ask = f"/jobs/{job_id}/charts/kl.json"
    wide, narrow = client.get(ask).json(), client.get(f"{ask}?points=500").json()

    assert wide["said"].startswith("750 of 6000 points: each stands for 8 steps")
    assert narrow["said"].startswith("375 of 6000 points: each stands for 16 steps")
    (line,) = narrow["lines"]
    assert (max(line["high"]), min(line["low"])) == (9.0, -9.0)
    assert (line["values"][-1], narrow["x"][-1]) == (pytest.approx(scores[-1]), 5999)
    curve = series.curves(db, job_id, ["train/kl"], Steps(), 500)["train/kl"]
    assert (curve.n, len(curve.steps)) == (6000, 375)
    for place in (0, 100, 374):
        part = scores[place * 16 : place * 16 + 16]
        assert curve.lows[place] == min(part)
        assert curve.means[place] == pytest.approx(sum(part) / 16)


@pytest.mark.requirement("UI-02")
def test_rest_answers_every_series_as_a_curve(client: TestClient, db: Database) -> None:
    """At most so many points, each with its step, the lowest, the highest and the last value."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        _steps(attempt, 1, 1999)
        attempt.finish()

    answer = client.get(f"/api/v1/jobs/{job_id}/metrics?points=1000")

    kl = answer.json()["train/kl"]
    assert (kl["n"], kl["stretch"], len(kl["points"])) == (1999, 2, 1000)
    assert kl["points"][0] == [1, 0.1, 0.1, 0.1]
    assert kl["points"][1] == [3, 0.2, 0.3, 0.3]
