"""The machine page: memory against its floors, the lane's holder, the watchdog's decisions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from app.shipped import demo_recipe
from engine.contract.run_dir import RunDir
from tests.app.night import night, queue
from tests.app.test_pages import words
from worker.database import Database
from worker.jobs import views
from worker.lane.mem_trace import MemoryLog
from worker.lane.sentry import DECISIONS

BEGAN = 1_790_000_000.0


def traced(root: Path) -> None:
    """Ten minutes of readings once a second that go down from 20 to 1 GB, and a decision."""
    root.mkdir(parents=True, exist_ok=True)
    log = MemoryLog(root)
    for second in range(600):
        log.note(BEGAN + second, round(20 - second * 19 / 599, 3), "training")
    decision = {
        "at": BEGAN + 599,
        "action": "kill",
        "rule": "hard_floor",
        "free_gb": 1.0,
        "fall_gb_s": 0.032,
        "phase": "training",
        "step": 41,
    }
    (root / DECISIONS).write_text(json.dumps(decision) + '\n{"torn')


@pytest.mark.requirement("UI-07")
def test_an_idle_machine_says_what_it_has_and_what_comes_next(client: TestClient) -> None:
    """Memory now, the limits in force, the free lane, and the command for a first run."""
    text = words(client.get("/machine").text)

    assert "free memory" in text
    assert "hard floor" in text
    assert "Free. cockpit drain takes it" in text
    assert f"cockpit enqueue rl_run {demo_recipe()}" in text


@pytest.mark.requirement("UI-07")
def test_the_trace_stands_against_the_floors_with_every_decision(
    client: TestClient, db: Database
) -> None:
    """What the watchdog did, why, at which reading and step; in words, chart and table."""
    number = queue(db, name="hungry")
    with night(db) as lane:
        lane.start()
        traced(RunDir(views.get_job(db, number).run_dir).attempt(1).root)

        text = words(client.get("/machine?part=live").text)
        drawing = client.get(f"/machine/{number}/memory.json").json()
        table = words(client.get(f"/machine/{number}/memory").text)

    assert "killed the engine's process group under the hard floor 1.0 GB" in text
    assert "0.032 GB/s training, step 41 1" in text
    assert "began at 20.0 GB, stands at 1.0 GB and was 1.0 GB at least" in text
    assert f"for job {number}" in text
    labels = [line["label"] for line in drawing["lines"]]
    assert labels == ["free memory", "warn level", "floor", "hard floor", "watchdog acted"]
    looks = [(tuple(line["dash"]), line.get("joined")) for line in drawing["lines"]]
    assert len(set(looks)) == len(labels), "no two are told apart by colour alone"
    free = drawing["lines"][0]["values"]
    assert (max(v for v in free if v is not None), min(v for v in free if v is not None)) == (20, 1)
    assert drawing["x"][0] == 0
    assert drawing["x"][-1] == pytest.approx(599 / 60, abs=0.01)
    assert drawing["lines"][-1]["values"][-1] == 1.0
    assert "free memory" in table


@pytest.mark.requirement("UI-07")
def test_a_long_night_is_thinned_without_losing_its_lowest_point(
    client: TestClient, db: Database
) -> None:
    """Eight hours of seconds become at most a screen of points; the dip of one second stays."""
    number = queue(db, name="long")
    with night(db) as lane:
        lane.start()
        root = RunDir(views.get_job(db, number).run_dir).attempt(1).root
        root.mkdir(parents=True, exist_ok=True)
        log = MemoryLog(root)
        for second in range(8 * 3600):
            log.note(BEGAN + second, 3.125 if second == 20_011 else 12.0, None)

        drawing = client.get(f"/machine/{number}/memory.json").json()

    assert len(drawing["x"]) < 2000
    assert 3.125 in drawing["lines"][0]["values"]
