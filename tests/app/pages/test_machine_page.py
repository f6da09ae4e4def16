"""The machine page: memory against its floors, the lane's holder, the watchdog's decisions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.web.shipped import demo_recipe
from engine.contract.run_dir import RunDir
from tests.app.night import night, queue
from tests.app.pages.test_pages import words
from worker.db.connection import Database
from worker.memory.sentry import DECISIONS
from worker.memory.trace import LOG, MemoryLog
from worker.read import jobs

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
        traced(RunDir(jobs.get_job(db, number).run_dir).attempt(1).root)

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
        root = RunDir(jobs.get_job(db, number).run_dir).attempt(1).root
        root.mkdir(parents=True, exist_ok=True)
        log = MemoryLog(root)
        for second in range(8 * 3600):
            log.note(BEGAN + second, 3.125 if second == 20_011 else 12.0, None)

        drawing = client.get(f"/machine/{number}/memory.json").json()

    assert len(drawing["x"]) < 2000
    assert 3.125 in drawing["lines"][0]["values"]


def drawn_of(client: TestClient, db: Database, root_of: Callable[[Path], None]) -> Any:
    """The memory chart of a running job whose attempt directory was filled so."""
    number = queue(db)
    with night(db) as lane:
        lane.start()
        root = RunDir(jobs.get_job(db, number).run_dir).attempt(1).root
        root.mkdir(parents=True, exist_ok=True)
        root_of(root)
        assert client.get(f"/jobs/{number}?tab=memory").status_code == 200
        assert client.get("/machine").status_code == 200
        return client.get(f"/machine/{number}/memory.json").json()


@pytest.mark.requirement("UI-07")
def test_where_nobody_measured_nothing_is_drawn(client: TestClient, db: Database) -> None:
    """A machine that stood still for two minutes leaves a hole, a slow second none."""

    def frozen(root: Path) -> None:
        log = MemoryLog(root)
        for second in (0, 1, 6, 7, 127, 128, 300):
            log.note(BEGAN + second, 9.0 if second < 100 else 4.0, None)

    drawing = drawn_of(client, db, frozen)

    free = drawing["lines"][0]
    assert free["holes"]
    seen = [*zip(drawing["x"], free["values"], strict=True)]
    assert [value for _, value in seen] == [9, 9, 9, 9, None, 4, 4, None, 4, 4]
    assert seen[4][0] == pytest.approx((7 + 127) / 2 / 60, abs=1e-3)
    text = words(client.get("/machine").text)
    assert "The longest time without a reading was 2 min 52 s" in text


@pytest.mark.requirement("UI-07")
@pytest.mark.parametrize("readings", [40_000, 1500, 1])
def test_it_is_said_how_many_readings_are_drawn(
    client: TestClient, db: Database, readings: int
) -> None:
    """Beside the chart and above its table."""

    def long(root: Path) -> None:
        points = [[BEGAN + second, 9.0 + (second * 7919) % 13, None] for second in range(readings)]
        (root / LOG).write_text("".join(json.dumps(point) + "\n" for point in points))

    said = drawn_of(client, db, long)["said"]

    table = words(client.get("/machine/1/memory").text)
    assert said in table
    if readings == 1:
        assert said == "1 reading"
    else:
        assert f" of {readings} readings" in said


@pytest.mark.requirement("UI-07")
@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe\x00\x80",
        b'["a", "b", "c"]',
        b"[NaN, 3.0, null]",
        b"[1790000003.0, Infinity, null]",
        b"[1790000003.0, null, null]",
        b"[1" + b"0" * 400 + b", 3.0, null]",
        b"[" * 100_000,
        b"{}",
        b"7",
        b"[]",
    ],
)
def test_a_damaged_line_costs_itself_and_not_the_page(
    client: TestClient, db: Database, line: bytes
) -> None:
    """What a power cut or a broken disk leaves in the log and among the decisions."""
    decision = {"at": BEGAN + 2, "action": "warn", "rule": "under_warn", "free_gb": 8.0}
    odd = [{**decision, "at": None}, {"at": BEGAN, "action": "warn"}, {"at": "x"}, [1], "warn"]

    def damaged(root: Path) -> None:
        whole = b"[1790000001.0, 9.0, null]\n%s\n[1790000002.0, 8.0, null]\n"
        (root / LOG).write_bytes(whole % line)
        lines = [*(json.dumps(entry).encode() for entry in odd), line]
        kept = b"".join(one + b"\n" for one in [*lines, json.dumps(decision).encode()])
        (root / DECISIONS).write_bytes(kept)

    drawing = drawn_of(client, db, damaged)

    assert drawing["lines"][0]["values"][0] == 9
    assert drawing["lines"][0]["values"][-1] == 8
    acted = drawing["lines"][-1]
    assert (acted["label"], [v for v in acted["values"] if v is not None]) == (
        "watchdog acted",
        [8.0],
    )


@pytest.mark.requirement("UI-07")
def test_what_no_decision_means_is_what_the_readings_say(client: TestClient, db: Database) -> None:
    """Not that memory was never near, where nobody looked or where it was."""

    def none(root: Path) -> None:
        pass

    drawn_of(client, db, none)
    assert "No decision was kept." in words(client.get("/machine?job=1").text)

    drawn_of(client, db, lambda root: MemoryLog(root).note(BEGAN, 0.001, None))
    assert "Nothing was decided." in words(client.get("/machine?job=2").text)

    drawn_of(client, db, lambda root: MemoryLog(root).note(BEGAN, 1e6, None))
    assert "Nothing: memory never came near the" in words(client.get("/machine?job=3").text)


@pytest.mark.requirement("UI-07")
def test_the_last_run_is_found_behind_any_number_of_queued_jobs(
    client: TestClient, db: Database
) -> None:
    """Sixty jobs that wait hide nothing of the night before; what runs comes first."""
    first, second = queue(db, name="first"), queue(db, name="second")
    with night(db) as lane:
        lane.start().finish()
        lane.start().finish()
    for _ in range(60):
        queue(db)
    assert f"Memory during second rl_run #{second}" in words(client.get("/machine").text)
    assert f"Memory during first rl_run #{first}" in words(client.get(f"/machine?job={first}").text)

    with night(db) as lane:
        lane.start()
        assert "Memory during rl_run #3" in words(client.get("/machine").text)


@pytest.mark.requirement("UI-07")
def test_an_ended_run_without_its_memory_log_says_so(client: TestClient, db: Database) -> None:
    """And where it would be; a drain would bring nothing."""
    number = queue(db)
    assert "cockpit drain runs the queue" in words(client.get(f"/jobs/{number}?tab=memory").text)
    with night(db) as lane:
        lane.start().finish()
    log = RunDir(jobs.get_job(db, number).run_dir).attempt(1).root / LOG

    text = words(client.get(f"/jobs/{number}?tab=memory").text)

    assert f"No reading: {log} is not there any more, holds none, or cannot be read." in text
    assert "cockpit drain" not in text.partition("Memory")[2]
