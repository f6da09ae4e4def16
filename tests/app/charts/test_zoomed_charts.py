"""A part of a run shows what the whole shows there: held-out, gaps, marks and smoothed lines."""

from __future__ import annotations

import math
import time
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from starlette.testclient import TestClient

from engine.contract import events
from tests.app.night import night, queue
from worker.db.connection import Database

AXES = ("step", "tokens", "time")


def _learn(db: Database, steps: int, gate_every: int) -> int:
    """A finished run that picked step 30, an event a second; its pool score goes up and down."""
    job_id = queue(db)
    seconds = count(time.time())
    clock = SimpleNamespace(time=lambda: next(seconds), monotonic=time.monotonic)
    with mock.patch.object(events, "time", clock), night(db) as lane:
        attempt = lane.start()
        for step in range(steps + 1):
            if step:
                values = {"pool/score": _pool(step), "rollout/tokens": 100.0}
                attempt.add("metric", step=step, values=values)
            if step % gate_every == 0:
                score = 0.5 + 0.01 * (step // gate_every)
                ci95 = [score - 0.04, score + 0.04]
                attempt.add("gate", step=step, split="select", score=score, n=500, ci95=ci95)
        attempt.finish()
    return job_id


def _pool(step: int) -> float:
    return 0.6 + 0.3 * math.sin(step)


@pytest.fixture
def job_id(db: Database) -> int:
    """Forty steps with a gate at each tenth."""
    return _learn(db, 40, 10)


def _drawn(client: TestClient, job_id: int, **query: Any) -> Any:
    if "begin" in query:
        query |= {"from": query.pop("begin"), "to": query.pop("end")}
    return client.get(f"/jobs/{job_id}/charts/learning.json", params=query).json()


def _pairs(drawing: Any, column: list[float | None]) -> list[tuple[int, float]]:
    steps = drawing.get("steps", drawing["x"])
    return [(step, y) for step, y in zip(steps, column, strict=True) if y is not None]


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize("axis", AXES)
def test_between_two_gates_held_out_and_its_interval_run_through(
    client: TestClient, job_id: int, axis: str
) -> None:
    """From the gate before the part to the one behind it, as the whole run draws them there."""
    whole = _drawn(client, job_id, axis=axis)
    part = _drawn(client, job_id, axis=axis, begin=11, end=19)
    pool, heldout = part["lines"]

    assert [step for step, _ in _pairs(part, pool["values"])] == list(range(11, 20))
    assert _pairs(part, heldout["values"]) == [(10, 0.51), (20, 0.52)]
    assert [_pairs(part, edge) for edge in part["band"]] == [
        [(10, 0.47), (20, 0.48)],
        [(10, 0.55), (20, 0.56)],
    ]
    place = dict(zip(whole.get("steps", whole["x"]), whole["x"], strict=True))
    assert part["x"] == [place[step] for step in range(10, 21)]
    assert part["range"] == [place[11], place[19]]
    assert part["gates"] == []
    assert part["said"] == "all 9 points"
    assert "range" not in whole


@pytest.mark.requirement("UI-02")
def test_one_gate_in_a_part_is_drawn_between_its_neighbours(
    client: TestClient, job_id: int
) -> None:
    """The line of held-out runs through the part as it does through the run."""
    part = _drawn(client, job_id, begin=19, end=23)

    assert [step for step, _ in _pairs(part, part["lines"][1]["values"])] == [10, 20, 30]
    assert part["gates"] == [20]


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize("axis", AXES)
def test_a_selected_step_outside_of_the_part_has_no_mark(
    client: TestClient, job_id: int, axis: str
) -> None:
    """And inside it stands where the whole run shows it."""
    whole = _drawn(client, job_id, axis=axis)

    assert whole["selected"] is not None
    assert _drawn(client, job_id, axis=axis, begin=11, end=19)["selected"] is None
    assert _drawn(client, job_id, axis=axis, begin=31, end=40)["selected"] is None
    assert _drawn(client, job_id, axis=axis, begin=25, end=35)["selected"] == whole["selected"]


def test_a_part_behind_the_last_gate_ends_where_the_run_does(
    client: TestClient, job_id: int
) -> None:
    """No empty room for steps that nobody took."""
    part = _drawn(client, job_id, begin=31, end=9999)

    assert part["range"] == [31, 40]
    assert _pairs(part, part["lines"][1]["values"]) == [(30, 0.53), (40, 0.54)]


def _smoothed(line: Any, share: float) -> list[float]:
    """As charts.js does it."""
    mean, weight = line.get("start", [0.0, 0.0])
    found = []
    for value in line["values"]:
        if value is not None:
            mean, weight = share * mean + (1 - share) * value, share * weight + (1 - share)
            found.append(mean / weight)
    return found


@pytest.mark.requirement("UI-02")
@pytest.mark.parametrize("smooth", ["0.5", "0.95", "0.99"])
def test_a_smoothed_value_is_the_same_at_every_zoom(
    client: TestClient, job_id: int, smooth: str
) -> None:
    """What the steps before the part weigh comes with it."""
    whole = _drawn(client, job_id, smooth=smooth)["lines"][0]
    part = _drawn(client, job_id, smooth=smooth, begin=11, end=19)["lines"][0]

    at_whole, at_part = (_smoothed(line, float(smooth)) for line in (whole, part))
    assert at_part == pytest.approx(at_whole[10:19], rel=1e-6)
    assert "start" not in whole


@pytest.mark.requirement("UI-02")
def test_a_smoothed_stretch_is_the_same_in_a_part_of_the_same_detail(
    client: TestClient, db: Database
) -> None:
    """Stretches of eight steps on both: the one that the part's left end cuts counts too."""
    job_id = _learn(db, 1600, 400)
    asked = {"smooth": "0.9", "points": 300}
    whole = _drawn(client, job_id, **asked)
    part = _drawn(client, job_id, **asked, begin=403, end=1599)

    assert whole["said"].startswith("201 of 1600 points: each stands for 8 steps")
    assert part["said"].startswith("149 of 1192 points: each stands for 8 steps")
    at_whole, at_part = (_smoothed(drawing["lines"][0], 0.9) for drawing in (whole, part))
    assert at_part == pytest.approx(at_whole[-1 - len(at_part) : -1], rel=1e-4)
