"""REST: enqueue, list, look; every error is a problem document."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from app.forms import requests
from engine.contract.documents import parse_yaml
from tests.app.night import CONFIG, night, queue
from worker.db.connection import Database
from worker.queue.states import State
from worker.read import feed, jobs

_JSON = "application/json"
NEW = {"kind": "rl_run", "config": CONFIG, "name": "tonight"}


@pytest.mark.requirement("JB-10")
def test_a_post_only_enqueues(client: TestClient, db: Database) -> None:
    """After the answer the job is queued, nobody claimed it, and no process was begun."""
    before = psutil.Process().children()

    answer = client.post("/api/v1/jobs", json=NEW)

    job = jobs.get_job(db, answer.json()["id"])
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/api/v1/jobs/{job.id}"
    assert (job.state, job.attempt, job.started_at) == (State.QUEUED, 0, None)
    assert not job.run_dir.exists()
    assert [entry.to_state for entry in jobs.audit(db, job.id)] == [State.QUEUED]
    assert set(psutil.Process().children()) <= set(before)


def test_a_yaml_text_and_the_same_json_give_the_same_job(client: TestClient) -> None:
    """Both go through one validation path."""
    text = json.dumps(CONFIG)  # JSON is YAML

    by_yaml = client.post("/api/v1/jobs", json={"kind": "rl_run", "yaml": text})
    again = {"kind": "rl_run", "config": CONFIG, "force": True}
    by_json = client.post("/api/v1/jobs", json=again)

    assert by_yaml.json()["config"] == by_json.json()["config"]


@pytest.mark.parametrize(
    ("door", "sweep"), [("/api/v1/jobs", {}), ("/api/v1/sweeps", {"sweep": {"seed": [1, 2]}})]
)
def test_a_long_document_keeps_no_page_waiting(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, door: str, sweep: dict[str, Any]
) -> None:
    """YAML is read beside the loop that answers everybody."""
    on_the_loop: list[bool] = []

    def read(text: str) -> dict[str, Any]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            on_the_loop.append(False)
        else:
            on_the_loop.append(True)
        return parse_yaml(text)

    monkeypatch.setattr(requests, "parse_yaml", read)
    text = json.dumps(CONFIG)

    answer = client.post(door, json={"kind": "rl_run", "yaml": text, **sweep})

    assert (answer.status_code, on_the_loop) == (201, [False])


def test_a_wrong_config_names_each_field_and_writes_nothing(
    client: TestClient, db: Database
) -> None:
    """The same four parts at every door: field, value, problem, remedy."""
    wrong = CONFIG | {"group_kk": 4, "lr": -1, "warmup": {"batch_sise": 8}}

    answer = client.post("/api/v1/jobs", json={"kind": "rl_run", "config": wrong})

    assert answer.status_code == 422
    problems = {problem["field"]: problem for problem in answer.json()["problems"]}
    assert problems["group_kk"]["remedy"] == "did you mean group_k?"
    assert problems["warmup.batch_sise"]["remedy"] == "did you mean batch_size?"
    assert problems["lr"]["value"] == -1
    assert feed.last_change_id(db) == 0
    assert jobs.list_jobs(db) == []


def test_broken_rows_are_all_named_and_dropped_only_when_that_is_asked(
    client: TestClient, db: Database, tmp_path: Path
) -> None:
    """By line and field; what a job does without is said in the answer to its enqueue."""
    rows = [{"prompt": f"{n} + 1?", "answer": str(n + 1)} for n in range(400)]
    broken: list[Any] = [{"prompt": "1 + 1?"}, {"prompt": "", "answer": "2"}, 7]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *broken]))
    config = {**CONFIG, "base": "Qwen/Qwen2.5-0.5B-Instruct", "data": {"source": str(path)}}

    refused = client.post("/api/v1/jobs", json={"kind": "rl_run", "config": config})
    assert refused.status_code == 422
    said = [one["problem"] for one in refused.json()["problems"] if one["field"] == "data.source"]
    assert [one.split(":")[0] for one in said] == ["line 401", "line 402", "line 403"]
    assert "its fields are 'prompt'" in said[0]
    assert jobs.list_jobs(db) == []

    config["data"] = {"source": str(path), "bad_rows": "drop"}
    queued = client.post("/api/v1/jobs", json={"kind": "rl_run", "config": config})
    assert queued.status_code == 201
    assert "left 3 rows out (bad_rows: drop): line 401: has no text" in queued.text


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"kind": "tally", "kind": "rl_run"}', "is not JSON (the key 'kind' stands twice)"),
        (b'{"config": ' + b"[" * 200_000, "is nested more than 100 deep; send one JSON object"),
        (b'{"kind": "rl_run", "config": {"lr": 1e999}}', "1e999 is larger than any number"),
        (b'{"kind": "rl_run", "config": {"lr": 1, "lr": 2}}', "the key 'lr' stands twice"),
        (b'{"priority": ' + b"9" * 5000 + b"}", "a whole number has 5000 digits; at most 100"),
        (b'{"kind": "rl_run", "config": {"base": "a\\u0000b"}}', "config.base: holds a null byte"),
    ],
)
def test_json_that_nobody_meant_is_refused_in_words(
    client: TestClient, db: Database, body: bytes, words: str
) -> None:
    """As YAML is: what Python would read all the same is not what was asked for."""
    answer = client.post("/api/v1/jobs", content=body, headers={"content-type": _JSON})

    assert (answer.status_code, words in answer.json()["detail"]) == (422, True)
    assert len(answer.json()["detail"]) < 300
    assert jobs.list_jobs(db) == []


@pytest.mark.parametrize(
    ("content", "content_type", "status"),
    [
        (b"{", _JSON, 422),
        (b"\xff\xfe", _JSON, 422),
        (b"[]", _JSON, 422),
        (b'"text"', _JSON, 422),
        (b"[" * 100_000, _JSON, 422),
        (b'{"kind": "rl_run", "config": ' + b'{"a":' * 400 + b"1" + b"}" * 401, _JSON, 422),
        (b'{"kind": 3}', _JSON, 422),
        (b'{"kind": "rl_run", "confg": {}}', _JSON, 422),
        (b'{"kind": "rl_run", "config": {}, "yaml": ""}', _JSON, 422),
        (b'{"kind": "rl_run", "yaml": "- a"}', _JSON, 422),
        (b'{"kind": "rl_run", "config": {"base": "\\ud800"}}', _JSON, 422),
        (b'{"kind": "rl_run", "yaml": "base: \\"\\\\ud800\\""}', _JSON, 422),
        (b'{"kind": "rl_run", "config": {"lr": 1e999}}', _JSON, 422),
        (b"kind: rl_run", "application/yaml", 415),
        (b"kind=rl_run", "application/x-www-form-urlencoded", 415),
        (b"{}", "", 415),
    ],
)
def test_a_body_that_is_no_job_is_answered_with_a_problem_document(
    client: TestClient, db: Database, content: bytes, content_type: str, status: int
) -> None:
    """Never a 500, never a row."""
    headers = {"content-type": content_type} if content_type else {}

    answer = client.post("/api/v1/jobs", content=content, headers=headers)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]
    assert jobs.list_jobs(db) == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/nothing", 404),
        ("GET", "/api/v1/jobs/7", 404),
        ("GET", "/api/v1/jobs/0", 404),
        ("GET", f"/api/v1/jobs/{2**63}", 404),
        ("GET", "/api/v1/jobs/abc", 404),
        ("GET", "/api/v1/jobs/7/metrics", 404),
        ("GET", "/api/v1/jobs/7/events", 404),
        ("GET", "/api/v1/kinds/rl_runn", 404),
        ("GET", "/api/v1/kinds/0", 404),
        ("DELETE", "/api/v1/jobs", 405),
        ("PUT", "/api/v1/jobs/1", 405),
        ("GET", "/api/v1/jobs?limit=0", 422),
        ("GET", "/api/v1/jobs?before=x", 422),
        ("GET", "/api/v1/jobs?state=asleep", 422),
        ("GET", f"/api/v1/stream?after={2**70}", 422),
    ],
)
def test_every_error_is_a_problem_document(
    client: TestClient, method: str, path: str, status: int
) -> None:
    """Programs read one shape, whatever went wrong."""
    answer = client.request(method, path)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status


@pytest.mark.parametrize(
    "path",
    [
        "/healthz",
        "/readyz",
        "/metrics",
        "/api/v1/jobs",
        "/api/v1/jobs/1",
        "/api/v1/jobs/7",
        "/api/v1/stream?after=x",
        "/",
        "/jobs/1",
        "/queue",
        "/nothing",
        "/static/cockpit.css",
    ],
)
def test_whatever_can_be_got_can_be_asked_for_its_head(
    client: TestClient, db: Database, path: str
) -> None:
    """As a monitor does: status and type of the page, and no body."""
    queue(db)
    got, head = client.get(path), client.head(path)

    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head.headers["content-type"] == got.headers["content-type"]
    assert "content-security-policy" in head.headers


def test_pages_of_jobs_follow_each_other_without_gap_or_double(
    client: TestClient, db: Database
) -> None:
    """A keyset page begins behind the last id of the one before, even when jobs came meanwhile."""
    ids = [queue(db) for _ in range(5)]

    first = client.get("/api/v1/jobs?limit=2").json()
    queue(db)
    second = client.get(f"/api/v1/jobs?limit=2&before={first['next_before']}").json()
    third = client.get(f"/api/v1/jobs?limit=2&before={second['next_before']}").json()

    seen = [job["id"] for page in (first, second, third) for job in page["jobs"]]
    assert seen == ids[::-1]
    assert third["next_before"] is None


def test_metrics_and_audit_of_a_run_can_be_read(client: TestClient, db: Database) -> None:
    """What the run page draws, as data."""
    queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.gate(0, 0.55)
        attempt.step(1, 0.6)

        metrics = client.get(f"/api/v1/jobs/{attempt.job_id}/metrics?series=pool/score").json()
        events = client.get(f"/api/v1/jobs/{attempt.job_id}/events").json()

    assert metrics == {"pool/score": [[1, 0.6]]}
    assert [event["to_state"] for event in events] == ["queued", "running"]


def test_each_kind_is_described_by_its_json_schema(client: TestClient) -> None:
    """The help of a setting is the text under its field."""
    kinds = {kind["name"]: kind for kind in client.get("/api/v1/kinds").json()["kinds"]}

    assert (
        "Prompts drawn" in kinds["rl_run"]["schema"]["properties"]["tasks_per_step"]["description"]
    )


def test_liveness_and_readiness_answer(client: TestClient) -> None:
    """For whatever supervises the process."""
    assert client.get("/healthz").json() == {"status": "ok", "viewers": 0}
    assert client.get("/readyz").json() == {"status": "ok"}


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["base", "lr", "data", "warmup", "group_k", "seed", "data.source", "tuning"]
)


@given(config=st.dictionaries(NAMES | st.text(max_size=8), TREES, max_size=5), name=TREES)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_config_and_no_name_breaks_the_door(
    client: TestClient, config: dict[str, Any], name: Any
) -> None:
    """Whatever is sent, it is a job or it is explained."""
    body = json.dumps({"kind": "rl_run", "config": config, "name": name})

    answer = client.post("/api/v1/jobs", content=body, headers={"content-type": "application/json"})

    assert answer.status_code in {201, 409, 422}
    if answer.status_code == 422:
        assert all(problem["message"] for problem in answer.json()["problems"])


@given(text=st.text(max_size=60) | st.text("{}[]:-&*!|>'\"%@`#,?\n\t a1", max_size=60))
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_yaml_breaks_the_door(client: TestClient, text: str) -> None:
    """Anchors, tags, tabs, surrogates: refused in one line, never a traceback; what says nothing
    names no model."""
    body = json.dumps({"kind": "rl_run", "yaml": text, "force": True})

    answer = client.post("/api/v1/jobs", content=body, headers={"content-type": "application/json"})

    assert answer.status_code == 422


@pytest.mark.parametrize(
    ("verb", "door", "body"),
    [
        ("put", "autonomy", {"interval_min": "30"}),
        ("put", "autonomy", {"cap_usd": False}),
        ("put", "autonomy", {"cap_usd": 5, "max_failures": "2"}),
        ("put", "autonomy", {"cap_usd": 5, "max_failures": 2.0}),
        ("post", "budget", {"usd": "1.5"}),
        ("post", "budget", {"usd": True}),
        ("post", "jobs", {"kind": "rl_run", "config": CONFIG, "priority": "3"}),
        ("post", "jobs", {"kind": "rl_run", "config": CONFIG, "force": "yes"}),
        ("post", "jobs", {"kind": "rl_run", "config": CONFIG | {"lr": "1e-5"}}),
        ("post", "jobs", {"kind": "rl_run", "config": CONFIG | {"force_headroom": 1}}),
        ("post", "sweeps", {"kind": "rl_run", "config": CONFIG, "sweep": {"lr": [1e-5, "1e-4"]}}),
        ("post", "jobs", {"kind": "rl_run", "config": {}}),
        ("post", "jobs", {"kind": "rl_run", "config": None}),
    ],
)
def test_a_body_means_what_it_says(
    client: TestClient, db: Database, verb: str, door: str, body: dict[str, Any]
) -> None:
    """Text is no number and no switch; an empty config names no model."""
    answer = client.request(verb, f"/api/v1/{door}", json=body)

    assert answer.status_code == 422
    assert all(problem["remedy"] for problem in answer.json()["problems"])
    assert jobs.list_jobs(db) == []


def test_the_openapi_document_knows_every_body_and_the_key(client: TestClient) -> None:
    """Also of routes that read theirs themselves: a generated client can arm, spend and queue."""
    paths = client.get("/api/v1/openapi.json").json()["paths"]

    for path, verb, field in (
        ("/api/v1/autonomy", "put", "expires"),
        ("/api/v1/budget", "post", "usd"),
        ("/api/v1/jobs", "post", "yaml"),
    ):
        body = paths[path][verb]["requestBody"]["content"]["application/json"]["schema"]
        assert field in body["properties"], path
    for path in ("/api/v1/jobs", "/api/v1/sweeps"):
        names = [known["name"] for known in paths[path]["post"]["parameters"]]
        assert names == ["idempotency-key"]
