"""Autonomy, budget and report at every door: command line and REST say the same."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from tests.app.conftest import Said
from tests.app.night import queue
from worker.db.connection import Database
from worker.schedule import policy

Cockpit = Callable[..., Said]
DOOR = "/api/v1/autonomy"


@pytest.mark.requirement("LN-01")
def test_on_records_the_policy_and_prints_the_crontab_line(cockpit: Cockpit, db: Database) -> None:
    """The lines alone are on standard output, so that they can be piped into a crontab; with two
    looks an hour and one at the opening.
    """
    said = cockpit(
        "autonomy", "on", "--interval-min", "30", "--cap-usd", "5", "--window", "22:00-07:00"
    )

    assert said.code == 0
    line, opening = said.out.splitlines()
    assert line.startswith("*/30 * * * * cd ")
    assert opening.startswith("0 22 * * * cd ")
    assert "armed: every 30 min, 22:00-07:00" in said.err
    assert "caution: armed, but nothing looks at the queue" in said.err
    assert "an hour of the lane costs $0" in said.err
    found = policy.standing(db)
    assert found is not None
    assert (found.armed, found.cap_usd, found.window) == (True, 5.0, "22:00-07:00")


@pytest.mark.requirement("LN-01")
def test_status_tells_what_off_undoes(cockpit: Cockpit) -> None:
    """Armed with its terms, then off; twice off is no error."""
    cockpit("autonomy", "on", "--cap-usd", "5", "--max-failures", "3")
    armed = json.loads(cockpit("autonomy", "status", "--json").out)
    off = cockpit("autonomy", "off")
    after = json.loads(cockpit("autonomy", "status", "--json").out)
    again = cockpit("autonomy", "off")

    assert (armed["armed"], armed["may_start"], armed["reason"]) == (True, True, None)
    assert (armed["terms"]["cap_usd"], armed["terms"]["max_failures"]) == (5, 3)
    assert (off.code, off.err) == (0, "autonomy is off\n")
    assert (after["armed"], after["reason"]) == (False, "NOT_ARMED")
    assert again.err == "autonomy was off before\n"


@pytest.mark.requirement("LN-01")
def test_status_says_every_limit_that_was_set_also_while_nothing_may_start(
    cockpit: Cockpit, db: Database
) -> None:
    """Before going to bed: until when, how many hours, how many failures; none where none is."""
    cockpit("autonomy", "on")
    bare = cockpit("autonomy", "status").out
    limits = ("--cap-usd", "5", "--cap-gpu-hours", "8", "--max-failures", "3")
    said = cockpit("autonomy", "on", "--zone", "UTC", *limits, "--expires", "2031-01-01 07:00")
    armed = cockpit("autonomy", "status").out
    cockpit("autonomy", "off")
    off = cockpit("autonomy", "status").out

    assert "expires" not in bare
    assert "failures" not in bare
    assert "until 3 failures in a row, until 2031-01-01 07:00\n" in said.err
    for told in (armed, off):
        assert "\nexpires       2031-01-01 07:00\n" in told
        assert "\nends after    3 failures in a row\n" in told
        assert "\nspent today   $0.00 of $5\n" in told
        assert "\nused today    0.00 h of 8 h at $" in told


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--interval-min", "0"], "interval_min: input should be greater than or equal to 0.02"),
        (["--cap-usd", "-1"], "cap_usd: input should be greater than or equal to 0"),
        (["--window", "22-7"], "window: is no window (got '22-7'); write it like 22:00-07:00"),
        (["--window", "07:00-07:00"], "window: begins when it ends"),
        (["--days", "caturday"], "days: are no days of the week"),
        (["--zone", "Mars/One"], "zone: is no time zone (got 'Mars/One'); write a name like"),
        (["--expires", "yesterday"], "expires: is no time"),
        (
            ["--expires", "2020-01-01"],
            "expires: is long past (got '2020-01-01'); give a later time\n",
        ),
        (["--interval-min", "45", "--install-cron"], "interval_min: cannot be said in a crontab"),
    ],
)
def test_terms_that_cannot_hold_are_told_in_one_line(
    cockpit: Cockpit, db: Database, arguments: list[str], line: str
) -> None:
    """Exit status 2, and nothing is armed."""
    said = cockpit("autonomy", "on", *arguments)

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"cockpit: {line}")
    assert said.err.count("\n") == 1
    assert policy.standing(db) is None


def test_preview_shows_tonights_order(cockpit: Cockpit, db: Database) -> None:
    """A line a job, with start, finish, cost and memory; JSON holds the parts of the estimate."""
    job_id = queue(db)
    cockpit("autonomy", "on")

    shown = cockpit("autonomy", "preview")
    [step] = json.loads(cockpit("autonomy", "preview", "--json").out)["steps"]

    assert shown.out.splitlines()[1].startswith(f"{job_id}  ")
    assert (step["job_id"], step["expected_by"], step["need_by"]) == (job_id, "guess", "estimate")
    assert step["starts_at"] < step["finishes_at"]
    assert set(step["parts_gb"]) >= {"weights", "optimizer", "kv_cache", "logits", "activations"}


@pytest.mark.requirement("LN-05")
def test_money_spent_elsewhere_stands_in_the_days_ledger(cockpit: Cockpit) -> None:
    """Added at one door, shown at another."""
    added = cockpit("budget", "add", "1.50", "--note", "API calls")
    day = json.loads(cockpit("budget", "show", "--json").out)

    assert added.code == 0
    assert day["spent_usd"] == 1.5
    assert [(row["entry"], row["note"]) for row in day["rows"]] == [("external", "API calls")]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["budget", "add", "0"], "usd: is nothing"),
        (["budget", "add", "-1.50"], "usd: takes back more than the $0.00"),
        (["budget", "show", "--day", "tonight"], "--day: is no date"),
        (["report", "--date", "tonight"], "--date: is no date"),
    ],
)
def test_what_is_no_money_and_no_date_is_told_in_one_line(
    cockpit: Cockpit, arguments: list[str], line: str
) -> None:
    """Field, value, remedy."""
    said = cockpit(*arguments)

    assert said.code == 2
    assert said.err.startswith(f"cockpit: {line}")
    assert said.err.count("\n") == 1


@pytest.mark.requirement("LN-11")
def test_the_report_begins_with_its_sentence(cockpit: Cockpit, db: Database) -> None:
    """The same sentence in JSON and for people."""
    shown = cockpit("report")
    told = json.loads(cockpit("report", "--json").out)

    assert shown.code == 0
    assert shown.out.splitlines()[0] == told["sentence"] == "RAN 0 · 0 OOM-deferred · $0.00"


def test_a_trial_message_without_an_address_says_where_to_write_one(cockpit: Cockpit) -> None:
    """The file and the setting that names another."""
    said = cockpit("notify", "test")

    assert said.code == 1
    assert "notify.yml does not exist" in said.err
    assert "NIGHTLANE_NOTIFY_FILE" in said.err


@pytest.mark.requirement("LN-01")
def test_rest_arms_shows_and_disarms(client: TestClient, db: Database) -> None:
    """PUT the terms, GET the status, DELETE switches off."""
    armed = client.put(DOOR, json={"interval_min": 15, "cap_usd": 2, "zone": "Europe/Berlin"})
    shown = client.get(DOOR)
    off = client.delete(DOOR)

    assert (armed.status_code, armed.json()["armed"]) == (200, True)
    assert shown.json()["terms"]["cap_usd"] == 2
    assert shown.json()["changed_by"] == "rest"
    assert off.json()["reason"] == "NOT_ARMED"
    decided = client.get("/api/v1/lane/decisions").json()
    assert [entry["what"] for entry in decided] == ["disarmed", "armed"]


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("PUT", DOOR, {"interval_min": "often"}, "interval_min"),
        ("PUT", DOOR, {"cap_euro": 3}, "cap_euro"),
        ("PUT", DOOR, {"window": "22-7"}, "window"),
        ("PUT", DOOR, {"expires": 7}, "expires"),
        ("PUT", DOOR, {"expires_at": 7}, "expires_at"),
        ("PUT", DOOR, {"expires_at": 9e9}, "expires_at"),
        ("PUT", DOOR, {"expires_at": 1e300}, "expires_at"),
        ("PUT", DOOR, {"max_failures": 2**31}, "max_failures"),
        ("PUT", DOOR, {"max_failures": 10**30}, "max_failures"),
        ("PUT", DOOR, {"expires": "+2h", "expires_at": 9e9}, "expires_at"),
        ("PUT", DOOR, {"cap_usd": False}, "cap_usd"),
        ("PUT", DOOR, {"cap_gpu_hours": True}, "cap_gpu_hours"),
        ("PUT", DOOR, {"max_failures": True}, "max_failures"),
        ("PUT", DOOR, {"interval_min": True}, "interval_min"),
        ("POST", "/api/v1/budget", {"usd": True}, "usd"),
        ("POST", "/api/v1/budget", {"usd": 1, "day": 5}, "day"),
        ("POST", "/api/v1/budget", {"usd": -3}, "usd"),
        ("POST", "/api/v1/budget", {}, "usd"),
        ("GET", "/api/v1/report?date=tonight", None, "date"),
    ],
)
def test_rest_refuses_with_the_field_that_is_wrong(
    client: TestClient, method: str, path: str, body: dict[str, object] | None, field: str
) -> None:
    """A problem document, status 422."""
    answer = client.request(method, path, json=body)

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert [problem["field"] for problem in answer.json()["problems"]] == [field]


def test_rest_shows_preview_budget_lane_and_report(client: TestClient, db: Database) -> None:
    """What the command line prints, as data."""
    job_id = queue(db)
    client.put(DOOR, json={})

    preview = client.get(f"{DOOR}/preview").json()
    spend = client.post("/api/v1/budget", json={"usd": 2.5})
    budget = client.get("/api/v1/budget").json()
    lane = client.get("/api/v1/lane").json()
    report = client.get("/api/v1/report").json()

    assert [step["job_id"] for step in preview["steps"]] == [job_id]
    assert spend.status_code == 201
    assert budget["spent_usd"] == 2.5
    assert lane["held"] is False
    assert report["external_usd"] in {0.0, 2.5}  # after noon it belongs to the next morning


def test_a_drain_tells_what_it_put_off_and_what_the_policy_said(
    cockpit: Cockpit, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that waits is not called done."""
    monkeypatch.setenv("NIGHTLANE_MEMORY_TOTAL_GB", "0.4")
    job_id = queue(db)

    by_hand = cockpit("drain")
    scheduled = json.loads(cockpit("drain", "--scheduled", "--json").out)

    assert by_hand.code == 0
    assert by_hand.err.startswith(f"job {job_id} waits: OOM_ENVELOPE: it needs 0.5 GB (estimate)")
    assert by_hand.err.endswith("nothing else can start now\n")
    assert scheduled["withheld"] == "nothing starts jobs by itself; run: cockpit drain"
