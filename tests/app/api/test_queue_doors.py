"""The queue's verbs through REST, command line and browser: one rule, three doors."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import delete, insert, update
from starlette.testclient import TestClient

from tests.app.conftest import ORIGIN, Said
from tests.app.night import CONFIG, night, queue
from worker.attempt.settlement import Verdict
from worker.db.connection import Database
from worker.db.tables import job, lane
from worker.lane.process_id import ProcessIdentity
from worker.queue import pausing
from worker.queue.states import State
from worker.queue.submit import claim
from worker.read import feed, jobs

Cockpit = Callable[..., Said]
NEW = {"kind": "rl_run", "config": CONFIG}
KEY = {"idempotency-key": "3f1c"}


def succeeded(db: Database, verdict: str = "gain") -> int:
    """One run with a result."""
    number = queue(db)
    with night(db) as lane:
        lane.start().finish(verdict=verdict)
    return number


def failed(db: Database) -> int:
    number = queue(db)
    with night(db) as lane:
        lane.start().settle(Verdict(State.FAILED, "it crashed", "CRASH", "it crashed"))
    return number


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return str(path)


# --- REST ---


@pytest.mark.requirement("JB-03")
def test_a_post_that_comes_again_under_its_key_is_answered_by_the_same_job(
    client: TestClient, db: Database
) -> None:
    """201 the first time, 200 then; with another body 422 and the word for it."""
    first = client.post("/api/v1/jobs", json=NEW, headers=KEY)
    again = client.post("/api/v1/jobs", json=NEW, headers=KEY)
    other = client.post("/api/v1/jobs", json=NEW | {"name": "x"}, headers=KEY)

    assert [answer.status_code for answer in (first, again, other)] == [201, 200, 422]
    assert again.headers["location"] == first.headers["location"] == "/api/v1/jobs/1"
    assert other.json()["code"] == "key_reused"
    assert len(jobs.list_jobs(db)) == 1


@pytest.mark.requirement("JB-12")
def test_what_was_tried_is_answered_with_a_conflict_and_a_link_to_the_result(
    client: TestClient, db: Database
) -> None:
    """409, the job, its verdict; `force` runs it all the same."""
    number = succeeded(db)

    answer = client.post("/api/v1/jobs", json=NEW)

    assert answer.status_code == 409
    body = answer.json()
    assert (body["code"], body["job_id"], body["verdict"]) == ("already_tried", number, "gain")
    assert client.get(body["href"]).json()["id"] == number
    assert client.post("/api/v1/jobs", json=NEW | {"force": True}).status_code == 201


@pytest.mark.requirement("JB-12")
def test_what_waits_already_is_answered_with_a_conflict_and_a_link_to_it(
    client: TestClient,
) -> None:
    """409 at every door; its key is answered as before, `force` queues it all the same."""
    key = {"Idempotency-Key": "k-1"}
    assert client.post("/api/v1/jobs", json=NEW, headers=key).status_code == 201

    answer = client.post("/api/v1/jobs", json=NEW)
    by_form = client.post("/new", data={"kind": "rl_run", "yaml": yaml.safe_dump(CONFIG)})

    assert answer.status_code == 409
    body = answer.json()
    assert (body["code"], body["job_id"], body["state"]) == ("already_queued", 1, "queued")
    assert client.get(body["href"]).json()["id"] == 1
    assert by_form.status_code == 409
    assert "waits in the queue already: job 1 has" in by_form.text
    assert client.post("/api/v1/jobs", json=NEW, headers=key).status_code == 200
    assert client.post("/api/v1/jobs", json=NEW | {"force": True}).status_code == 201


@pytest.mark.requirement("JB-05")
def test_a_job_can_be_placed_moved_and_changed(client: TestClient) -> None:
    """Priority, start time, parents and tags; the queue shows order and reasons."""
    for extra in ({}, {"priority": 5}, {"after": [1], "tags": ["night"]}, {"not_before": "+1h"}):
        body = NEW | {"force": True} | extra
        assert client.post("/api/v1/jobs", json=body).status_code == 201

    shown = client.get("/api/v1/queue").json()
    assert [one["id"] for one in shown["next"]] == [2, 1, 4, 3]
    assert [one["waits_for"]["reason"] for one in shown["next"]] == [
        "NOT_ARMED",
        "NOT_ARMED",
        "NOT_BEFORE",
        "WAITING_FOR",
    ]
    assert shown["next"][2]["waits_for"]["next_eligible_at"] > 0
    assert client.post("/api/v1/jobs/1/move", json={"to": "top"}).json()["priority"] == 5
    assert client.patch("/api/v1/jobs/4", json={"not_before": None, "priority": 9}).is_success
    assert [one["id"] for one in client.get("/api/v1/queue").json()["next"]] == [4, 1, 2, 3]
    tagged = client.get("/api/v1/jobs?tag=night").json()["jobs"]
    assert [one["id"] for one in tagged] == [3]


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_job_beside_itself_stays_where_it_is(cockpit: Cockpit, db: Database, side: str) -> None:
    """Nothing moved, so nobody is told that something did."""
    queue(db)
    number = queue(db)

    said = cockpit("move", str(number), f"--{side}", str(number))

    assert (said.code, said.err) == (0, f"job {number} stays where it is; next: 1, 2\n")


@pytest.mark.requirement("JB-07")
def test_a_job_can_be_cancelled_put_back_and_tried_again(client: TestClient, db: Database) -> None:
    """Each answer says what came of it, and shows the job."""
    queue(db)
    cancelled = client.post("/api/v1/jobs/1/cancel").json()
    assert (cancelled["outcome"], cancelled["job"]["state"]) == ("at once", "cancelled")
    assert client.post("/api/v1/jobs/1/cancel").json()["outcome"] == "before"
    assert client.post("/api/v1/jobs/1/retry").json()["state"] == "queued"
    with night(db) as lane:
        lane.start()
        for verb, word in (("requeue", "asked"), ("requeue", "before"), ("cancel", "asked")):
            assert client.post(f"/api/v1/jobs/1/{verb}").json()["outcome"] == word
    again = client.post(f"/api/v1/jobs/{succeeded(db)}/retry?fresh=true").json()
    assert (again["id"], again["clone_of"]) == (3, 2)


@pytest.mark.requirement("JB-07")
def test_a_retry_from_the_beginning_is_asked_for_in_the_address_or_the_body(
    client: TestClient, db: Database
) -> None:
    """A body without a word to it resumes, as no body does."""
    done = succeeded(db)
    client.post("/api/v1/jobs", json=NEW | {"force": True})
    client.post("/api/v1/jobs/2/cancel")

    assert client.post(f"/api/v1/jobs/{done}/retry", json={"fresh": True}).json()["id"] == 3
    assert client.post("/api/v1/jobs/2/retry", json={}).json()["id"] == 2


@pytest.mark.parametrize(
    ("query", "body", "words"),
    [
        ("", {"frsh": True}, "frsh: is not a setting; did you mean fresh?"),
        ("", {"fresh": "yes"}, "fresh: takes true or false, and this is read as"),
        ("?fresh=true", {"fresh": False}, "fresh: stands twice (got True); give ?fresh= or the"),
    ],
)
def test_a_retry_that_cannot_be_understood_is_none(
    client: TestClient, db: Database, query: str, body: dict[str, Any], words: str
) -> None:
    """Nothing of a request is dropped in silence."""
    number = succeeded(db)

    answer = client.post(f"/api/v1/jobs/{number}/retry{query}", json=body)

    assert (answer.status_code, words in answer.json()["detail"]) == (422, True)
    assert len(jobs.list_jobs(db)) == 1


@pytest.mark.requirement("JB-07")
def test_the_queue_can_be_paused_and_resumed(client: TestClient, db: Database) -> None:
    """Who, when and why are shown; every job says it."""
    queue(db)

    paused = client.post("/api/v1/queue/pause?why=moving").json()

    assert (paused["paused"]["actor"], paused["paused"]["why"]) == ("rest", "moving")
    assert paused["next"][0]["waits_for"]["reason"] == "PAUSED"
    assert client.post("/api/v1/queue/resume").json()["paused"] is None
    by_body = client.post("/api/v1/queue/pause", json={"why": "lunch"}).json()
    assert by_body["paused"]["why"] == "lunch"


@pytest.mark.parametrize(
    ("query", "body", "words"),
    [
        ("", {"wy": "lunch"}, "wy: is not a setting; did you mean why?"),
        ("", {"why": 3}, "why: takes text, and this is read as"),
        ("", {"why": "x" * 201}, "why: string should have at most 200 characters"),
        ("", {"why": "a\0"}, "why: holds a null byte"),
        ("?why=a", {"why": "b"}, "why: stands twice (got 'a'); give ?why= or the body, not both"),
    ],
)
def test_a_pause_whose_reason_cannot_be_kept_is_no_pause(
    client: TestClient, db: Database, query: str, body: dict[str, Any], words: str
) -> None:
    """Nothing of a request is dropped in silence."""
    answer = client.post(f"/api/v1/queue/pause{query}", json=body)

    assert (answer.status_code, words in answer.json()["detail"]) == (422, True)
    assert jobs.paused(db) is None


@pytest.mark.requirement("JB-13")
def test_a_sweep_is_sent_as_lists_or_as_one_yaml(client: TestClient) -> None:
    """Both give a sweep with a job for every combination."""
    lists = {"lr": [1e-4, 1e-3], "seed": [0, 1]}
    by_json = client.post("/api/v1/sweeps", json=NEW | {"sweep": lists})
    text = yaml.safe_dump(CONFIG | {"sweep": lists})
    again = {"kind": "rl_run", "yaml": text, "force": True}
    by_yaml = client.post("/api/v1/sweeps", json=again)

    for answer, first in ((by_json, 1), (by_yaml, 5)):
        assert answer.status_code == 201
        assert answer.json()["job_ids"] == list(range(first, first + 4))
        made = answer.json()
        assert [found["field"] for found in made.pop("cautions")] == ["sweep.seed"]
        assert client.get(answer.headers["location"]).json() == made
    members = client.get("/api/v1/jobs?sweep=2").json()["jobs"]
    assert members[0]["sweep_point"] == {"lr": 1e-3, "seed": 1}
    assert client.post("/api/v1/sweeps/2/cancel").json() == {
        str(number): "at once" for number in range(5, 9)
    }


REFUSED: Sequence[tuple[str, str, Any, int, str]] = [
    ("POST", "/api/v1/jobs/7/cancel", None, 404, "not_found"),
    ("POST", "/api/v1/jobs/7/retry", None, 404, "not_found"),
    ("POST", "/api/v1/jobs/7/move", {"to": "top"}, 404, "not_found"),
    ("GET", "/api/v1/sweeps/7", None, 404, "not_found"),
    ("GET", "/api/v1/jobs/7/attempts", None, 404, "not_found"),
    ("POST", "/api/v1/jobs/1/cancel", None, 409, "wrong_state"),
    ("POST", "/api/v1/jobs/1/retry", None, 409, "wrong_state"),
    ("POST", "/api/v1/jobs/2/retry", None, 409, "wrong_state"),
    ("POST", "/api/v1/jobs/1/requeue", None, 409, "wrong_state"),
    ("POST", "/api/v1/jobs/2/move", {"before": 1}, 409, "wrong_state"),
    ("PATCH", "/api/v1/jobs/1", {"priority": 3}, 409, "wrong_state"),
    ("PATCH", "/api/v1/jobs/2", {"after": [2]}, 409, "cycle"),
    ("PATCH", "/api/v1/jobs/2", {"after": [9]}, 422, "invalid"),
    ("PATCH", "/api/v1/jobs/2", {"state": "running"}, 422, "invalid"),
    ("PATCH", "/api/v1/jobs/2", {"priority": 1000}, 422, "invalid"),
    ("POST", "/api/v1/jobs/2/move", {}, 422, "invalid"),
    ("POST", "/api/v1/jobs", NEW | {"not_before": "2020-01-01"}, 422, "invalid"),
    ("POST", "/api/v1/jobs", NEW | {"sweep": {"seed": [1]}}, 422, "invalid"),
    ("POST", "/api/v1/jobs", NEW | {"name": "x" * 10_000_000}, 413, "too_large"),
    (
        "POST",
        "/api/v1/sweeps",
        NEW | {"sweep": {"seed": list(range(1000)), "lr": list(range(1000))}},
        422,
        "invalid",
    ),
]


def test_what_is_refused_has_a_word_that_never_changes(client: TestClient, db: Database) -> None:
    """Job 1 has succeeded, job 2 is queued; both stay as they are."""
    succeeded(db)
    queue(db, seed=3)
    before = feed.last_change_id(db)

    for method, path, body, status, code in REFUSED:
        answer = client.request(method, path, json=body)

        assert (answer.status_code, answer.json()["code"]) == (status, code), (method, path, body)
        assert answer.headers["content-type"] == "application/problem+json"
        assert feed.last_change_id(db) == before, (method, path, body)


# --- the command line ---


@pytest.mark.requirement("JB-07")
def test_the_commands_do_the_same(cockpit: Cockpit, recipe: str, db: Database) -> None:
    """Ids on standard output, sentences on standard error."""
    enqueued = cockpit("enqueue", "rl_run", recipe, "--priority", "5", "--tag", "a", "--key", "k")
    assert enqueued.out == "1\n"
    again = cockpit("enqueue", "rl_run", recipe, "--priority", "5", "--tag", "a", "--key", "k")
    assert (again.out, "it is job 1" in again.err) == ("1\n", True)
    refused = cockpit("enqueue", "rl_run", recipe)
    assert (refused.code, "job 1 has the same kind" in refused.err) == (4, True)
    more = ("enqueue", "rl_run", recipe, "--force")
    assert cockpit(*more, "--after", "1", "--clone-of", "1").out == "2\n"
    assert jobs.get_job(db, 2).clone_of == 1
    assert cockpit(*more, "--not-before", "+1h", "--json").code == 0
    assert "WAITING_FOR: runs after job 1" in cockpit("show", "2").out
    assert "NOT_BEFORE not before" in cockpit("jobs").out
    assert json.loads(cockpit("jobs", "--tag", "a", "--json").out)[0]["id"] == 1
    assert "next: 1, 3, 2" in cockpit("move", "3", "--bottom").err
    assert cockpit("edit", "3", "--priority", "9", "--not-before", "none").code == 0
    assert [row["id"] for row in json.loads(cockpit("jobs", "--next", "--json").out)] == [3, 1, 2]
    assert "the queue is paused" in cockpit("pause", "--why", "lunch").err
    assert "cockpit resume" in cockpit("drain").err
    assert "PAUSED" in cockpit("jobs").out
    assert cockpit("resume", "--json").out.strip().startswith("{")
    assert "job 1 is cancelled" in cockpit("cancel", "1").err
    assert "was cancelled before" in cockpit("cancel", "1").err
    assert jobs.get_job(db, 2).cause == "PARENT_FAILED"
    assert cockpit("retry", "1").out == "1\n"
    assert json.loads(cockpit("cancel", "1", "--json").out) == {"outcomes": {"1": "at once"}}
    assert cockpit("retry", "1", "--fresh").out == "4\n"


@pytest.mark.requirement("JB-07")
def test_a_cancel_that_is_asked_for_twice_says_whether_the_job_still_runs(
    cockpit: Cockpit, db: Database
) -> None:
    """It was asked before, and is not over before its engine says so."""
    number = queue(db)
    with night(db) as lane:
        running = lane.start()
        assert "job 1 was asked to stop; it ends" in cockpit("cancel", "1").err
        assert "job 1 was asked to stop before; it still runs" in cockpit("cancel", "1").err
        running.settle(Verdict(State.CANCELLED, "cancelled"))

    assert jobs.get_job(db, number).state is State.CANCELLED
    assert "job 1 was cancelled before" in cockpit("cancel", "1").err


@pytest.mark.requirement("JB-09")
def test_a_start_time_is_shown_beside_what_a_job_waits_for_first(
    cockpit: Cockpit, db: Database
) -> None:
    """Once: where the start time is what it waits for, that line says it."""
    queue(db)
    for after in (["--after", "1"], []):
        arguments = ("enqueue", "rl_run", "-", "--force", "--not-before", "+2h", *after)
        assert cockpit(*arguments, stdin=yaml.safe_dump(CONFIG).encode()).code == 0

    both, alone = cockpit("show", "2").out, cockpit("show", "3").out

    assert "waits for     WAITING_FOR: runs after job 1\n" in both
    assert "\nnot before    " in both
    assert "NOT_BEFORE: its start time has not come (not before " in alone
    assert "\nnot before" not in alone


@pytest.mark.requirement("JB-09")
def test_what_becomes_of_a_job_whose_parent_fails_is_shown_beside_its_parents(
    cockpit: Cockpit, db: Database
) -> None:
    """Asked for, or by default; a job without parents has nothing to say there."""
    queue(db)
    for given in ((), ("--if-parent-fails", "run")):
        arguments = ("enqueue", "rl_run", "-", "--force", "--after", "1", *given)
        assert cockpit(*arguments, stdin=yaml.safe_dump(CONFIG).encode()).code == 0

    assert "\nruns after    1\nif one fails  cancel\n" in cockpit("show", "2").out
    assert "\nruns after    1\nif one fails  run\n" in cockpit("show", "3").out
    assert "if one fails" not in cockpit("show", "1").out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("--tag", "nosuch"),
            "no job here is like that: --tag nosuch; list them all with: cockpit",
        ),
        (("--sweep", "99", "--state", "failed"), "like that: --state failed --sweep 99;"),
        (("--next",), "no job is queued; queue one with"),
        ((), None),
    ],
)
def test_a_list_without_a_job_says_what_was_looked_for(
    cockpit: Cockpit, db: Database, arguments: tuple[str, ...], line: str | None
) -> None:
    """Jobs are there; only a house without any is told to queue its first."""
    assert "no job here; queue one with" in cockpit("jobs").err
    succeeded(db)

    said = cockpit("jobs", *arguments)

    assert (line or "") in said.err
    assert (said.err == "") is (line is None)


@pytest.mark.requirement("JB-13")
def test_a_sweep_is_one_yaml_or_one_option(cockpit: Cockpit, recipe: str, tmp_path: Path) -> None:
    """A dry run counts the jobs and writes nothing."""
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(CONFIG | {"sweep": {"seed": [0, 1]}}))

    tried = json.loads(cockpit("enqueue", "rl_run", str(path), "--dry-run", "--json").out)
    assert (tried["jobs"], tried["points"]) == (2, [{"seed": 0}, {"seed": 1}])
    assert cockpit("enqueue", "rl_run", str(path)).out == "1\n2\n"
    said = cockpit("enqueue", "rl_run", recipe, "--sweep", "seed=[2,3]", "--sweep", "lr=[1e-4]")
    assert (said.out, "sweep 2: 2 jobs are queued" in said.err) == ("3\n4\n", True)
    assert len(json.loads(cockpit("jobs", "--sweep", "2", "--json").out)) == 2
    assert cockpit("cancel", "3").code == 0
    assert cockpit("cancel", "--sweep", "2").err.splitlines() == [
        "job 3 was cancelled before",
        "job 4 is cancelled",
    ]
    assert cockpit("cancel", "--sweep", "9").code == 3


def test_a_prune_says_what_it_freed(cockpit: Cockpit, db: Database) -> None:
    """In megabytes, job by job; a dry run says the same."""
    number = succeeded(db)
    folder = jobs.get_job(db, number).run_dir / "rollouts"
    folder.mkdir()
    (folder / "1.jsonl").write_bytes(b"x" * 2_000_000)
    with db.write_tx() as conn:
        conn.execute(update(job).values(finished_at=1.0))

    for arguments, kept in ((("--dry-run",), True), ((), False)):
        said = cockpit("prune", "--older-than", "30d", *arguments)
        assert (said.code, said.out) == (0, f"job {number}: 2.0 MB in 1 file\n")
        assert said.err == f"1 run, 2.0 MB{' would go' if kept else ''}\n"
        assert folder.exists() is kept
    assert "pruned" in cockpit("show", str(number)).out


MISTAKES: Sequence[tuple[tuple[str, ...], int, str]] = [
    (("cancel", "7"), 3, "job 7 does not exist"),
    (("cancel",), 2, "cancel: must know what; give a job's number, or --sweep"),
    (("cancel", "1"), 4, "job 1 is succeeded; there is nothing left to cancel"),
    (("retry", "1"), 4, "cockpit retry 1 --fresh"),
    (("requeue", "1"), 4, "job 1 is succeeded"),
    (("move", "1", "--top"), 4, "only queued jobs have a place"),
    (("move", "1"), 2, "move: must know one place; give one of --before JOB, --after JOB, --top"),
    (("move", "1", "--top", "--bottom"), 2, "move: must know one place"),
    (("move", "1", "--top", "--after", "1"), 2, "move: must know one place"),
    (("edit", "1", "--after", "4", "--no-after"), 2, "edit: must know which parents; give --after"),
    (("edit", "1", "--priority", "1000"), 2, "priority: input should be less than"),
    (("prune",), 2, "prune: must know which runs; give --older-than 30d, or --job JOB"),
    (("prune", "--job", "1", "--older-than", "0d"), 2, "prune: has both --job and --older-than"),
    (("prune", "--older-than", "soon"), 2, "--older-than: is no time span"),
    (("enqueue", "rl_run", "RECIPE"), 4, "was tried already: job 1"),
    (("enqueue", "rl_run", "RECIPE", "--after", "9"), 2, "after: is no job (got 9)"),
    (("enqueue", "rl_run", "RECIPE", "--clone-of", "9"), 2, "clone_of: is no job (got 9)"),
    (("enqueue", "rl_run", "RECIPE", "--not-before", "soon"), 2, "not_before: is no time"),
    (("enqueue", "rl_run", "RECIPE", "--priority", "101"), 2, "priority: input should be"),
    (("enqueue", "rl_run", "RECIPE", "--sweep", "seed"), 2, "--sweep: is no list of values"),
    (("enqueue", "rl_run", "RECIPE", "--if-parent-fails", "x"), 2, "if_parent_fails: input"),
]


def test_a_command_that_is_refused_says_why_in_one_line(
    cockpit: Cockpit, recipe: str, db: Database
) -> None:
    """Its exit code tells usage from not found from refused; nothing is written."""
    succeeded(db)
    before = feed.last_change_id(db)

    for arguments, code, line in MISTAKES:
        said = cockpit(*(recipe if part == "RECIPE" else part for part in arguments))

        assert (said.code, said.out) == (code, ""), arguments
        assert line in said.err
        assert "Traceback" not in said.err
        assert feed.last_change_id(db) == before, arguments


# --- the browser ---


@pytest.mark.requirement("JB-07")
def test_the_buttons_do_the_same_and_lead_back_to_a_page(client: TestClient, db: Database) -> None:
    """Plain forms: no script is needed."""
    first, second = queue(db), queue(db, seed=1)
    steps = [
        (f"/jobs/{second}/move/top", "/"),
        ("/queue/pause", "/"),
        ("/queue/resume", "/"),
        (f"/jobs/{first}/cancel", f"/jobs/{first}"),
        (f"/jobs/{first}/retry", f"/jobs/{first}"),
        (f"/jobs/{first}/cancel", f"/jobs/{first}"),
        (f"/jobs/{first}/retry-fresh", "/jobs/3"),
    ]
    for path, leads_to in steps:
        answer = client.post(path, headers={"origin": ORIGIN}, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, leads_to)

    assert [row.id for row in jobs.next_jobs(db)] == [second, 3]
    assert {entry.actor for entry in jobs.audit(db, first)[1:]} == {"browser"}


def test_a_form_of_another_site_moves_nothing(client: TestClient, db: Database) -> None:
    """The guard stands before these buttons too."""
    number = queue(db)

    for path in (f"/jobs/{number}/cancel", "/queue/pause"):
        answer = client.post(path, headers={"origin": "http://evil.example"})
        assert answer.status_code == 403

    assert jobs.get_job(db, number).state is State.QUEUED
    assert jobs.paused(db) is None


def test_what_a_button_cannot_do_is_explained_on_a_page(client: TestClient, db: Database) -> None:
    """The status of the refusal, and its sentence."""
    number = succeeded(db)

    answer = client.post(f"/jobs/{number}/cancel", headers={"accept": "text/html"})

    assert answer.status_code == 409
    assert f"job {number} is succeeded" in answer.text


@pytest.mark.requirement("JB-09")
def test_the_board_shows_why_each_job_waits_and_until_when(
    client: TestClient, db: Database
) -> None:
    """The first says what the queue waits for, a deferred one speaks for itself."""
    queue(db)
    queue(db, seed=1)
    client.post("/api/v1/jobs", json=NEW | {"not_before": "+1h", "config": CONFIG | {"seed": 2}})
    client.post("/api/v1/jobs", json=NEW | {"after": [1], "config": CONFIG | {"seed": 3}})

    page = client.get("/").text

    for words in ("nothing starts jobs by itself", "NOT_BEFORE", "WAITING_FOR", "runs after job 1"):
        assert words in page
    assert page.count("behind") == 1
    assert "Pause the queue" in page
    pausing.pause(db, actor="cli:ada", why="<b>lunch</b>")
    page = client.get("/").text
    assert "&lt;b&gt;lunch" in page
    assert "Resume the queue" in page


def test_the_run_page_offers_what_can_be_done(client: TestClient, db: Database) -> None:
    """And nothing else."""
    done, broken, waiting = succeeded(db), failed(db), queue(db, seed=1)
    words = ("Cancel", "Back to the queue", "Try again, resume", "Run again from the beginning")

    offered = {
        number: [word for word in words if f">{word}<" in client.get(f"/jobs/{number}").text]
        for number in (done, broken, waiting)
    }

    assert offered == {done: [words[3]], broken: [words[2], words[3]], waiting: [words[0]]}


@pytest.fixture
def orphan(db: Database) -> int:
    """A job that says running though its drain is dead."""
    number = queue(db)
    with db.write_tx() as conn:
        claim(conn, lane=db.settings.lane, fence=1, actor="the dead")
        dead = f"{ProcessIdentity.current().boot_id}:1:999"
        conn.execute(delete(lane))
        held = {"name": db.settings.lane, "fence": 1, "holder": dead}
        conn.execute(insert(lane).values(**held, since=0.0, heartbeat_at=0.0, beat=0.0))
        conn.execute(update(job).values(heartbeat_at=1.0))
    return number


@pytest.mark.requirement("JB-08")
@pytest.mark.parametrize(
    ("verb", "state"),
    [("cancel", State.CANCELLED), ("requeue", State.QUEUED)],
)
def test_a_dead_run_is_settled_at_every_door(
    client: TestClient, cockpit: Cockpit, db: Database, orphan: int, verb: str, state: State
) -> None:
    """By REST, by a button and by a command; nobody waits for a checkpoint of a dead engine."""
    page = client.get(f"/jobs/{orphan}").text
    assert 'action="/drains"' in page, "the page offers a drain"

    answer = client.post(f"/api/v1/jobs/{orphan}/{verb}")

    assert answer.status_code == 200
    assert answer.json()["job"]["state"] == state
    assert jobs.get_job(db, orphan).state is state
    assert "checkpoint" not in cockpit(verb, str(orphan)).err


@pytest.mark.requirement("JB-08")
def test_a_command_says_that_a_dead_run_was_settled(
    cockpit: Cockpit, db: Database, orphan: int
) -> None:
    """And what became of it by its own word."""
    said = cockpit("cancel", str(orphan)).err

    assert f"job {orphan} had no drain any more and is queued now" in said
    assert f"job {orphan} is cancelled" in said
