"""The pages as HTML: what stands on them, and that nothing a job brings along is markup."""

from __future__ import annotations

import hashlib
import html
import re
import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update
from starlette.testclient import TestClient

from app.web import report_file
from app.web.assets import STATIC_FOLDER
from app.web.shipped import demo_recipe
from app.web.templating import TEMPLATE_FOLDER
from tests.app.night import night, queue
from worker.attempt.settlement import Verdict
from worker.db.connection import Database
from worker.db.tables import attempt as attempts
from worker.queue.states import State
from worker.queue.submission import checked_name

HTML = {"accept": "text/html"}


def words(text: str) -> str:
    """The page as one reads it: tags gone, white space single; around a name there is none."""
    text = re.sub(r"</?bdi>|<style>.*?</style>", "", text, flags=re.DOTALL)
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", text).split()))


@pytest.mark.requirement("UI-01")
def test_an_empty_board_says_which_command_comes_next(client: TestClient) -> None:
    """The first thing a new user sees is the way to a first run."""
    text = client.get("/").text

    assert f"cockpit enqueue rl_run {demo_recipe()}" in text
    assert "cockpit drain" in text


@pytest.mark.requirement("UI-02")
def test_the_run_page_says_the_first_gate_alone_and_later_ones_against_it(
    client: TestClient, db: Database
) -> None:
    """An arrow from a number to itself would look like a run that learned nothing."""
    queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.gate(0, 0.55)
        assert "held-out, select rows 55.0 % step 0 pool" in words(client.get("/jobs/1").text)

        attempt.gate(10, 0.66)
        text = words(client.get("/jobs/1").text)

    assert "held-out, select rows 55.0 % → 66.0 % step 0 to step 10 pool" in text


@pytest.mark.requirement("UI-01")
def test_the_board_says_what_runs_what_is_next_and_why_it_waits(
    client: TestClient, db: Database
) -> None:
    """Phase, step, pool beside held-out, time left, health; then the queue in claim order."""
    for name in ("first", "second", "third"):
        queue(db, name=name)
    with night(db) as lane:
        attempt = lane.start()
        attempt.gate(0, 0.55)
        first = words(client.get("/?part=live").text)
        attempt.gate(10, 0.66)
        attempt.step(12, 0.7)

        text = words(client.get("/?part=live").text)

    assert "held-out 55.0 % step 0 time left" in first
    assert "phase training step 12 of 40 pool 70.0 %" in text
    assert "held-out 55.0 % → 66.0 % step 0 to step 10 time left about 1 min left" in text
    assert "fresh: heartbeat" in text
    assert 'second rl_run #2 lane "test" runs job 1; the queue goes on after it LANE_BUSY' in text
    assert "third rl_run #3 behind second (job 2)" in text


def test_a_run_that_ended_without_a_report_shows_its_last_gate(
    client: TestClient, db: Database
) -> None:
    """It is over: nothing more comes behind "so far"."""
    queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.gate(0, 0.5)
        attempt.gate(10, 0.66)
        running = words(client.get("/?part=live").text)
        attempt.settle(Verdict(State.SUCCEEDED, "the engine finished"))
    ended = words(client.get("/?part=live").text)

    assert "so far 66.0 %" in running
    assert "at the last gate 66.0 %" in ended
    assert "so far" not in ended


@pytest.mark.requirement("UI-01")
def test_a_queue_that_nobody_drains_says_so(client: TestClient, db: Database) -> None:
    """A job that silently never starts is the worst answer."""
    queue(db)

    text = words(client.get("/").text)

    assert "nothing starts jobs by itself; run: cockpit drain NOT_ARMED" in text
    assert "Run now starts a drain on lane test" in text


@pytest.mark.requirement("UI-01")
def test_recent_runs_show_before_after_lift_and_verdict(client: TestClient, db: Database) -> None:
    """One line a run, a failed one with its cause; its time is what it held the lane for."""
    queue(db)
    queue(db)
    with night(db) as lane:
        lane.start().finish()
        error = "the engine ended with exit status 1"
        lane.start().settle(Verdict(State.FAILED, "exit 1", cause="CRASH", error=error))
    with db.write_tx() as conn:
        conn.execute(update(attempts).values(seconds=184.0))

    text = words(client.get("/").text)

    assert (
        "succeeded – 55.2 % → 81.0 % +25.8 points (+21.8 to +29.8) gain 3 min 4 s 40 steps" in text
    )
    assert "failed – – – CRASH the engine ended with exit status 1" in text


@pytest.mark.requirement("UI-01")
def test_the_live_part_is_the_same_html_as_in_the_page(client: TestClient, db: Database) -> None:
    """One template serves both, so they cannot drift apart."""
    queue(db, name="tonight")

    whole, part = client.get("/").text, client.get("/?part=live").text

    # Only the part brings the tab's title along; the page has it in its head.
    steady = re.compile(r"<time.*?</time>|<title.*?</title>|\s+")
    assert steady.sub("", part) in steady.sub("", whole)
    assert "<title>" in part
    assert "<html" not in part


def test_the_run_page_leads_with_the_figures_of_the_result(
    client: TestClient, db: Database
) -> None:
    """Before, after, lift with its interval, verdict, selected checkpoint, steps, time, memory.

    The time is the lane's, as in report and budget; its engine counted half a minute less.
    """
    queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.gate(0, 0.55)
        attempt.step(1, 0.6)
        attempt.finish()
    with db.write_tx() as conn:
        conn.execute(update(attempts).values(seconds=184.0))

    text = words(client.get("/jobs/1").text)

    assert "step 30 solves 25.8 points more held-out rows than qwen3-tiny" in text
    assert "55.2 → 81.0 % (+21.8 to +29.8, n 500)." in text
    assert "selected step 30 steps 40 time 3 min 4 s engine's peak memory 2.3 GB" in text


def test_the_run_page_says_how_far_the_warm_up_is(client: TestClient, db: Database) -> None:
    """Before step 0 there is no gate; what is waited for is the target accuracy."""
    queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.write("progress", phase="warmup", step=0, max_steps=40)
        attempt.write("metric", step=75, values={"warmup/heldout": 0.07})

        text = words(client.get("/jobs/1").text)

    assert "warm-up, held-out 7.0 % 55.0 % wanted; step 75" in text


def test_the_run_page_says_why_a_run_ended(client: TestClient, db: Database) -> None:
    """The machine's word and the sentence, before everything else."""
    queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.log("ValueError: no such file")
        error = "the engine ended with exit status 1"
        attempt.settle(Verdict(State.FAILED, "exit 1", cause="CRASH", error=error))

    for tab, said in (("log", "ValueError: no such file"), ("events", "failed exit 1 drain:")):
        text = words(client.get(f"/jobs/1?tab={tab}").text)
        assert "CRASH the engine ended with exit status 1" in text
        assert said in text


@pytest.mark.requirement("UI-02")
def test_the_config_of_a_run_shows_what_differs_from_the_defaults(
    client: TestClient, db: Database
) -> None:
    """What somebody chose stands first; the rest is folded away."""
    queue(db, kl_coef=0.1)

    text = words(client.get("/jobs/1?tab=config").text)

    assert "base embedded:qwen3-tiny Qwen/Qwen2.5-7B-Instruct" in text
    assert "lr 0.0003 2e-05" in text
    folded = text[text.index("settings at their default") :]
    assert "kl_coef 0.1" in folded
    assert "lr 0.0003" not in folded


def test_a_name_an_error_and_a_log_with_markup_are_text(client: TestClient, db: Database) -> None:
    """A model's output and a user's words never become part of the page."""
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    queue(db, name=evil)
    with night(db) as lane:
        attempt = lane.start()
        attempt.log(evil + "</pre>")
        attempt.write("progress", phase=evil, step=1, max_steps=2)
        attempt.settle(Verdict(State.FAILED, evil, cause=evil, error=evil))
    queue(db, name=evil, verifier="exact", data={"prompt_field": evil})

    tabs = [
        f"/jobs/1?tab={tab}" for tab in ("charts", "log", "memory", "config", "events", "repro")
    ]
    for path in ("/", *tabs, "/jobs/2", "/jobs/1/charts/learning"):
        text = client.get(path).text
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "&lt;script&gt;alert" in text


def _is_a_name(text: str) -> bool:
    try:
        return checked_name(text) is not None
    except ValueError:
        return False


@given(name=st.text(min_size=1, max_size=60).filter(_is_a_name))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_name_breaks_a_page(client: TestClient, name: str) -> None:
    """Right-to-left marks, braces of the template language: what a name may hold is just text."""
    wanted = {"kind": "rl_run", "config": _BASE, "name": name, "force": True}
    job = client.post("/api/v1/jobs", json=wanted).json()

    assert client.get(f"/jobs/{job['id']}").status_code == 200
    assert client.get("/").status_code == 200


_BASE = {"base": "embedded:qwen3-tiny"}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/jobs/7", 404),
        ("/jobs/x", 404),
        (f"/jobs/{10**30}", 404),
        ("/jobs/7/charts/learning", 404),
        ("/jobs/7/charts/nope.json", 404),
        ("/<script>", 404),
        ("/static/../main.py", 404),
        ("/static/%2e%2e/main.py", 404),
    ],
)
def test_a_page_that_does_not_exist_is_a_page_that_says_so(
    client: TestClient, path: str, status: int
) -> None:
    """With the way back to the board."""
    answer = client.get(path, headers=HTML)

    assert answer.status_code == status
    assert "Back to the board" in answer.text
    assert "<script>" not in answer.text


@pytest.mark.parametrize(
    ("method", "path", "status", "link"),
    [
        ("POST", "/jobs/1/retry", 409, '<a href="/jobs/1">To job 1</a>'),
        ("GET", "/queue/arm", 405, '<a href="/queue">To the queue</a>'),
        ("POST", "/report/2026-01-01/proposals/FAILED-9/drop", 409, '<a href="/report">To the rep'),
    ],
)
def test_a_refusal_leads_back_to_what_it_is_about(
    client: TestClient, db: Database, method: str, path: str, status: int, link: str
) -> None:
    """A stale button, or the address of one."""
    queue(db)

    answer = client.request(method, path, headers=HTML)

    assert answer.status_code == status
    assert link in answer.text


def test_a_pattern_is_no_word_for_a_person(client: TestClient, db: Database) -> None:
    """What an address cannot hold is said, not the expression that it was held against."""
    number = queue(db)

    text = client.get(f"/jobs/{number}?smooth=2", headers=HTML).text

    assert "smooth: is no value that this can have (got &#39;2&#39;); correct it" in text


def test_vendored_files_are_the_ones_that_were_taken() -> None:
    """Name, version, hash and licence of each; a changed byte or a stray file fails."""
    folder = STATIC_FOLDER / "vendor"
    listed = tomllib.loads((folder / "VENDORED.toml").read_text())["file"]

    for entry in listed:
        content = (folder / entry["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"], entry["file"]
        assert (folder / entry["licence_text"]).stat().st_size > 100
    found = {path.name for path in folder.iterdir() if path.is_file()}
    assert found == {entry["file"] for entry in listed} | {"VENDORED.toml"}


def test_no_page_and_no_asset_of_ours_asks_another_host() -> None:
    """The cockpit works on a machine without a network."""
    ours = [path for path in STATIC_FOLDER.iterdir() if path.is_file()]
    for path in [*ours, *TEMPLATE_FOLDER.rglob("*.html")]:
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'<]*", path.read_text()))
        assert addresses <= {"http://www.w3.org/2000/svg"}, path
    for path in (STATIC_FOLDER / "vendor").glob("*.css"):
        assert "url(http" not in path.read_text()
        assert "@import" not in path.read_text()


def test_every_style_and_script_of_a_page_is_a_linked_file() -> None:
    """So the policy can refuse all text inside a page; the report's one file is no page."""
    for path in TEMPLATE_FOLDER.rglob("*.html"):
        text = path.read_text("utf-8")
        assert ("<style" in text) == (path.name == "report_file.html"), path.name
        assert not re.search(r"\s(style|on[a-z]+)=", text), path.name
        assert all(" src=" in tag for tag in re.findall("<script[^>]*>", text)), path.name


def test_no_sheet_inside_the_report_file_can_end_its_element() -> None:
    """They stand there unescaped."""
    assert "</" not in report_file.style()
    assert "<!--" not in report_file.style()


def test_every_asset_of_a_page_is_served_with_its_own_hash(client: TestClient) -> None:
    """A new version of a file has a new address, so no browser mixes old and new."""
    text = client.get("/").text
    addresses = re.findall(r'(?:href|src)="(/static/[^"]+)"', text)

    assert len(addresses) >= 9
    for address in addresses:
        assert client.get(address).status_code == 200
        assert re.search(r"\?[0-9a-f]{12}$", address)
