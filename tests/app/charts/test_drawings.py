"""What a run page draws first, what is kept of it, and the curves that REST answers with."""

from __future__ import annotations

import gzip
import json
import random
import re
from functools import partial
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.charts import charts
from app.charts.charts import Column, Part
from app.charts.drawings import Drawings, View
from app.charts.kept import Kept
from app.charts.panels import CHARTS
from app.charts.still import still
from tests.app.night import Attempt, night, queue
from worker.db.connection import Database
from worker.read import jobs as views
from worker.read import series
from worker.read.series import Steps


def _steps(attempt: Attempt, first: int, last: int) -> None:
    for step in range(first, last + 1):
        values = {"pool/score": step / 5000, "train/kl": 0.1 * step, "train/entropy": 0.4}
        attempt.add("metric", step=step, values=values)
    attempt.write("progress", phase="training", step=last, max_steps=last)


@pytest.mark.requirement("UI-02")
def test_the_page_shows_what_its_charts_will_ask_for(client: TestClient, db: Database) -> None:
    """Part and axis too, and no column of it; a live part brings nothing, its charts stand."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        _steps(attempt, 1, 30)
        attempt.finish()
    for query in ("", "axis=time", "from=10&to=20"):
        page = client.get(f"/jobs/{job_id}?{query}").text
        addresses = re.findall(r'data-chart="([^"]+)" data-follows-address', page)
        assert addresses[:2] == [
            f"/jobs/{job_id}/charts/learning.json?points=1000",
            f"/jobs/{job_id}/charts/kl.json?points=500",
        ]
        for address, size in zip(addresses, ((1080, 300), (480, 220)), strict=False):
            assert still(client.get(f"{address}&{query}").json(), *size) in page
    assert "all 11 points" in page

    assert 'class="still"' not in client.get(f"/jobs/{job_id}?part=live").text
    assert 'class="still"' not in client.get(f"/jobs/{job_id}?tab=log").text


def test_what_a_page_shows_cannot_end_its_element(
    client: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No words of a drawing are markup, whoever wrote them."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        _steps(attempt, 1, 3)
        attempt.finish()
    monkeypatch.setattr(charts, "drawn_of", lambda _: "</p><script>alert(1)</script>")

    text = client.get(f"/jobs/{job_id}").text

    assert "<script>alert(1)" not in text
    assert "&lt;/p&gt;&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_a_new_value_is_in_the_next_drawing_and_the_same_values_are_drawn_once(
    application: FastAPI, client: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody says that something changed: a kept drawing is found by what it shows."""
    made: list[Any] = []
    drawing = charts.drawing

    def counted(*of: Any, part: Part) -> Any:
        made.append(of)
        return drawing(*of, part=part)

    monkeypatch.setattr(charts, "drawing", counted)
    job_id = queue(db)
    drawings, chart = application.state.drawings, CHARTS["kl"]
    with night(db) as lane:
        attempt = lane.start()
        _steps(attempt, 1, 3)
        first = drawings.of(views.get_job(db, job_id), chart, View())
        assert drawings.of(views.get_job(db, job_id), chart, View()) is first
        assert len(made) == 1

        _steps(attempt, 4, 4)
        second = drawings.of(views.get_job(db, job_id), chart, View())
        attempt.finish()

    assert (json.loads(first)["x"], json.loads(second)["x"]) == ([1, 2, 3], [1, 2, 3, 4])


def test_a_value_that_was_replaced_in_the_middle_is_drawn_anew(
    application: FastAPI, client: TestClient, db: Database
) -> None:
    """First, last, lowest and highest stay as they were; the sum does not."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        _steps(attempt, 1, 9)
        drawings: Drawings = application.state.drawings
        before = drawings.of(views.get_job(db, job_id), CHARTS["kl"], View())
        attempt.write("metric", step=5, values={"train/kl": 0.25})
        after = drawings.of(views.get_job(db, job_id), CHARTS["kl"], View())
        attempt.finish()

    assert json.loads(before)["lines"][0]["values"][4] == 0.5
    assert json.loads(after)["lines"][0]["values"][4] == 0.25


def test_what_is_kept_is_bounded_and_the_least_used_goes_first() -> None:
    """Ten letters at most; `a` was asked for again, so `b` goes."""
    kept, made = Kept[str](10), []

    def make(letter: str) -> str:
        made.append(letter)
        return letter * 4

    for letter in ("a", "b", "a", "c", "a", "b"):
        assert kept.get(letter, partial(make, letter)) == letter * 4

    assert made == ["a", "b", "c", "b"]


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
def test_rest_answers_every_series_packed_once_and_plain_for_who_cannot_unpack(
    client: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are the same words; the second answer compresses nothing."""
    job_id = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        _steps(attempt, 1, 1999)
        attempt.finish()
    ask = f"/api/v1/jobs/{job_id}/metrics?points=1000"
    packed = client.get(ask)
    monkeypatch.setattr(gzip, "compress", None)
    plain = client.get(ask, headers={"Accept-Encoding": "identity"})

    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.json() == plain.json()
    kl = plain.json()["train/kl"]
    assert (kl["n"], kl["stretch"], len(kl["points"])) == (1999, 2, 1000)
    assert kl["points"][0] == [1, 0.1, 0.1, 0.1]
    assert kl["points"][1] == [3, 0.2, 0.3, 0.3]
