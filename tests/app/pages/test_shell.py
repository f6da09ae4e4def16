"""The parts around the pages: strip, Stop all, the board's list, audit, help, over a busy week."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple, get_args

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.charts.sparkline import sparkline
from app.main import create_app
from app.pages.help import COMPARED, ENGINE_EXITS, EXITS, STATES
from app.text.findings import MEANINGS
from app.web.navigation import NAVIGATION
from app.web.settings import AppSettings
from app.web.shipped import demo_recipe
from app.web.strip import Autonomy, read_strip
from engine.contract.run_dir import ExitCode
from tests.app.conftest import ORIGIN
from tests.app.night import night, queue
from tests.door import bearer
from tests.filled import Filled, filled
from worker.db import decisions
from worker.db.connection import Database, open_database
from worker.queue.deferral import Reason
from worker.queue.states import State
from worker.read import audit, jobs
from worker.read import board as board_model
from worker.read.audit import AuditFilter, audit_page
from worker.read.board import Filter, board_page
from worker.read.comparison.difference import Word
from worker.report.runs import VERDICTS
from worker.schedule import policy
from worker.schedule.stop_all import stop_all
from worker.settings import WorkerSettings


def words(text: str) -> str:
    """The page as one reads it."""
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", text).split()))


class Week(NamedTuple):
    """A filled directory and the application over it."""

    made: Filled
    client: TestClient


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Week]:
    """For tests that look and change nothing."""
    folder = tmp_path_factory.mktemp("week")
    settings = WorkerSettings(
        data_dir=folder / "data", lock_dir=folder / "locks", lane="test", price_usd_h=1.8
    )
    with open_database(settings) as db, filled(db) as made:
        application: FastAPI = create_app(AppSettings(), settings)
        with TestClient(application, base_url=ORIGIN, headers=bearer(db)) as client:
            yield Week(made, client)


# --- the strip ---


@pytest.mark.requirement("UI-01")
def test_every_page_says_what_runs_memory_budget_queue_and_autonomy(week: Week) -> None:
    """In one line, the same everywhere, with the way to Stop all."""
    for place in NAVIGATION:
        text = words(week.client.get(place.address).text)
        strip = text[text.index("running addition, 120 steps") :][:400]
        assert re.search(r"27/40, about \d+ min left", strip), place
        assert re.search(r"memory free [\d.]+ GB floor [\d.]+ GB", strip), place
        assert re.search(r"budget \$[\d.]+ of \$20 left", strip), place
        assert "queue 12 waiting autonomy RUNNING Stop all" in strip, place


@pytest.mark.requirement("UI-11")
def test_every_page_tells_the_stream_which_change_it_shows(week: Week) -> None:
    """What is written while it is on its way is sent behind it, and not lost."""
    for address in [*(place.address for place in NAVIGATION), "/no-such-page"]:
        text = week.client.get(address, headers={"accept": "text/html"}).text
        assert re.search(r'data-stream="/api/v1/stream\?after=[1-9]\d*"', text), address


def test_the_strip_names_a_policy_that_starts_nothing_any_more_off(db: Database) -> None:
    """Armed in the table is not armed in fact once the policy has run out."""
    now = 1_800_000_000.0
    policy.arm(db, policy.parse({"expires_at": now + 60}, now), actor="ada", now=now)

    assert read_strip(db, now).autonomy is Autonomy.ARMED
    assert read_strip(db, now + 61).autonomy is Autonomy.OFF


# --- Stop all ---


@pytest.mark.requirement("UI-01")
def test_stop_all_asks_first_then_pauses_cancels_and_disarms_with_a_row_for_each(
    client: TestClient, db: Database
) -> None:
    """Without script: a page that says what would happen, and a form that does it."""
    job_id = queue(db, name="tonight")
    policy.arm(db, policy.parse({}, 0.0), actor="ada", now=0.0)
    with night(db) as lane:
        attempt = lane.start()

        asked = words(client.get("/stop").text)
        assert "tonight rl_run #1 writes a checkpoint and ends as cancelled" in asked
        assert jobs.get_job(db, job_id).stop_requested is None, "asking changes nothing"
        answer = client.post("/stop", follow_redirects=False)

        assert answer.headers["location"] == "/"
        assert jobs.get_job(db, job_id).stop_requested == "cancel"
        assert (attempt.run.attempt(1).root / "abort").exists()
    standing = policy.standing(db)
    assert standing is not None
    assert not standing.armed
    assert jobs.paused(db) is not None
    said = {(entry.what, entry.actor) for entry in audit_page(db, AuditFilter()).entries}
    assert {("paused", "browser"), ("disarmed", "browser"), ("changed", "browser")} <= said


def test_stop_all_on_a_lane_at_rest_changes_nothing_twice(db: Database) -> None:
    """A second press is no second entry."""
    stop_all(db, actor="ada", now=1.0)
    before = len(decisions.newest(db, "test", 100))

    again = stop_all(db, actor="ada", now=2.0)

    assert again == (False, [], False)
    assert len(decisions.newest(db, "test", 100)) == before


# --- the board's list ---


@pytest.mark.requirement("UI-01")
def test_a_row_shows_gates_change_interval_and_the_cause_of_its_end(week: Week) -> None:
    """What one wants to know before opening a run."""
    text = week.client.get("/").text
    row = text[text.index(f'id="run-{week.made.ids["loss"]}"') :].split("</tr>")[0]

    assert re.search(r'role="img" aria-label="[\d.]+ % at step 0, [\d.]+ % at step 40;', row)
    assert "58.0 % → 44.0 % −14.0 points (−18.1 to −9.9) loss" in words(row)
    crash = text[text.index(f'id="run-{week.made.ids["crash"]}"') :].split("</tr>")[0]
    assert "CRASH the engine crashed (exit 1): ValueError: no column 'answer'" in words(crash)
    waiting = words(week.client.get("/?state=queued&q=1,024").text)
    assert "it needs 41.0 GB (its last run's peak) and 17.3 GB may be taken" in waiting


@pytest.mark.requirement("UI-01")
def test_the_address_narrows_the_list_and_every_link_keeps_it(week: Week) -> None:
    """State, kind, tag and words; a link shows the same to somebody else."""
    failed = words(week.client.get("/?state=failed").text)
    assert "new verifier, second try" in failed
    assert "dr. GRPO" not in failed
    boxes = week.client.get("/?kind=stage2_ab").text
    assert "boxes from own rollouts" in boxes
    assert "control without updates" not in boxes
    seeds = week.client.get("/?tag=seeds&q=seed+3").text
    assert len(re.findall(r'<tr id="run-', seeds)) == 3
    assert 'href="/?state=succeeded&amp;tag=seeds&amp;q=seed+3"' in seeds
    chips = re.compile(r'class="chip"[^>]*>(\w+)&nbsp;<span class="quiet">(\d+)')
    assert len(chips.findall(week.client.get("/").text)) > 4
    assert chips.findall(boxes) == chips.findall(seeds) == [], "numbers of jobs that are not shown"
    number = week.client.get(f"/?q=%23{week.made.ids['gain']}").text
    assert re.findall(r'<tr id="run-(\d+)"', number) == [str(week.made.ids["gain"])]
    assert "No job is like that" in words(week.client.get("/?q=never+queued").text)
    assert week.client.get("/?q=%00").status_code == 422


def test_pages_of_rows_miss_none_and_repeat_none(week: Week) -> None:
    """Keyset pages of every view add up to the whole."""
    db = week.made.db
    for states in (tuple(State), (State.SUCCEEDED, State.FAILED)):
        seen: list[int] = []
        before: int | None = None
        while True:
            page = board_page(db, Filter(states, before=before), "heldout/select", limit=7)
            seen += [row.id for row in page.rows]
            before = page.older
            if before is None:
                break
        wanted = [job.id for job in jobs.list_jobs(db, limit=200) if job.state in states]
        assert seen == wanted


def test_a_search_that_no_index_helps_stops_and_says_how_far_it_looked(
    week: Week, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its next page goes on from there, until everything was looked through."""
    monkeypatch.setattr(board_model, "LOOKED_THROUGH", 20)
    wanted, found = Filter(text="lr 1e-4"), []
    looks = 0
    while True:
        page = board_page(week.made.db, wanted, "heldout/select")
        found += [row.name for row in page.rows]
        looks += 1
        if page.older is None:
            break
        assert page.looked_to == page.older
        wanted = Filter(text="lr 1e-4", before=page.older)

    assert (found, looks) == (["lr 1e-4"], 3)


def test_a_sparkline_stands_inside_its_box_and_noise_is_no_climb() -> None:
    """Half a point up is a flat line; a hundred thousand gates are sixty points."""
    flat = sparkline([(0, 0.500), (10, 0.505)])
    assert flat is not None
    (_, first), (_, last) = (map(float, pair.split(",")) for pair in flat.lines[0].split())
    assert abs(first - last) < 2
    many = sparkline([(step, step / 100_000) for step in range(100_000)])
    assert many is not None
    assert len(many.lines[0].split()) <= 61
    assert sparkline([(0, 0.5)]) is None


# --- the audit ---


def test_the_audit_tells_jobs_and_lane_in_one_list_newest_first(week: Week) -> None:
    """Who, what, which job, why, and the numbers that a rule compared."""
    text = words(week.client.get("/audit").text)

    assert "the driver is being updated cli:tim" in text
    assert "defer OVER_DAILY_CAP #50" in text
    assert "cap_usd=20.0" in text
    narrowed = words(week.client.get("/audit?what=cancelled&actor=cli").text)
    assert "cancelled before it ran cli:tim" in narrowed
    assert "1 shown, the oldest is among them" in narrowed
    job = week.client.get(f"/audit?job={week.made.ids['memory']}").text
    assert len(re.findall(r'<tr id="entry-j', job)) == 3, "enqueued, running, aborted"
    assert "No entry is like that" in words(week.client.get("/audit?q=never+said").text)
    assert week.client.get("/audit?before=x").status_code == 422


def test_pages_of_the_audit_miss_none_and_repeat_none(week: Week) -> None:
    """Two tables, one list, whatever the clock did."""
    db = week.made.db
    whole = audit_page(db, AuditFilter(), limit=10_000).entries
    seen: list[str] = []
    before = None
    while True:
        page = audit_page(db, AuditFilter(before=before), limit=13)
        seen += [entry.key for entry in page.entries]
        before = page.older
        if before is None:
            break

    assert seen == [entry.key for entry in whole]
    assert {key[0] for key in seen} == {"j", "l"}


def test_a_search_of_the_audit_stops_and_goes_on(
    week: Week, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking through everything at once would hold the page."""
    monkeypatch.setattr(audit, "LOOKED_THROUGH", 30)
    before, found = None, 0
    for _ in range(20):
        page = audit_page(week.made.db, AuditFilter(text="SIGKILL", before=before))
        found += len(page.entries)
        before = page.older
        if before is None:
            break
        assert page.looked_through

    assert (found, before) == (1, None)


def test_an_empty_audit_says_which_command_comes_next(client: TestClient) -> None:
    """A written empty state."""
    assert f"cockpit enqueue rl_run {demo_recipe()}" in client.get("/audit").text


# --- help ---


@pytest.mark.requirement("UI-10")
def test_the_help_page_knows_every_word_that_the_code_knows(client: TestClient) -> None:
    """States, reasons, exit codes, pages with their keys: none is left out."""
    text = words(client.get("/help").text)

    assert set(STATES) == set(State)
    assert set(COMPARED) == set(get_args(Word))
    assert set(MEANINGS) == set(VERDICTS)
    assert set(ENGINE_EXITS) == set(ExitCode)
    for word in (*Reason, *STATES, *EXITS.values(), *VERDICTS, *COMPARED, "cockpit drain"):
        assert str(word) in text, word
    for reason in Reason:
        assert reason.meaning in text
    for place in NAVIGATION:
        assert f"g {place.key} {place.name}" in text
    assert len({place.key for place in NAVIGATION}) == len(NAVIGATION)


@pytest.mark.parametrize("typed", ["abc", "12a", "#", "9" * 40, "²", "-1"])
def test_an_audit_of_what_is_no_job_says_how_to_write_one(client: TestClient, typed: str) -> None:
    """In words for the person who typed it; the sign alone asks for nothing."""
    answer = client.get("/audit", params={"job": typed}, headers={"accept": "text/html"})

    if typed == "#":
        assert answer.status_code == 200
        return
    assert answer.status_code == 422
    said = words(answer.text)
    assert "job: is not a job's number (got " in said
    assert "; write its number, as 12 or #12, or leave the field empty" in said


def test_on_a_phone_no_dash_stands_without_the_name_of_its_value(week: Week) -> None:
    """The rows are cards there: a run without an outcome says what it has none of."""
    row = (
        week.client.get("/?state=cancelled").text.partition('<tr id="run-')[2].partition("</tr>")[0]
    )
    for cell in re.findall(r"<td([^>]*)>(.*?)</td>", row, re.DOTALL):
        assert "data-label" in cell[0] or words(cell[1]) != "–", cell
    lanes = re.findall(r'<td([^>]*)><span class="quiet">lane', week.client.get("/audit").text)
    assert set(lanes) == {""}
