"""A dry run says all that the form says, on the command line and over REST, and queues nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from app.forms import job_check
from tests.app.night import CONFIG, night, queue
from worker.db.connection import Database
from worker.queue.submit import enqueue
from worker.read import jobs
from worker.schedule.governor import Memory

Cockpit = Callable[..., Any]
RISKY = {"lr": 5e-5, "kl_coef": 0.001}
"""What collapsed: drawn a caution by every door."""


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A machine with so many GB to take, whatever else runs and writes on this one."""

    def leave(gb: float) -> None:
        monkeypatch.setattr(job_check, "free_gb", lambda _: 40.0)
        found = Memory(free_gb=gb + 1, total_gb=gb + 1, floor_gb=1.0)
        monkeypatch.setattr(job_check, "memory_of", lambda _: found)

    return leave


def by_line(cockpit: Cockpit, config: Mapping[str, Any], *options: str) -> dict[str, Any]:
    text = yaml.safe_dump(dict(config))
    said = cockpit("enqueue", "rl_run", "-", "--dry-run", "--json", *options, stdin=text.encode())
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads(said.out)
    return found


@pytest.mark.parametrize("gb", [8.0, 0.1])
@pytest.mark.parametrize("kind", ["rl_run", "stage2_ab"])
def test_a_dry_run_says_memory_time_cost_and_cautions(
    client: TestClient, room: Callable[[float], None], gb: float, kind: str
) -> None:
    """Of every kind: what it needs and from what that is known, and whether it fits now."""
    room(gb)
    example = yaml.safe_load(Path("examples/stage2_ab.yaml").read_text())
    config = {"rl_run": CONFIG | RISKY, "stage2_ab": example}[kind]

    answer = client.post("/api/v1/jobs/check", json={"kind": kind, "config": config})

    assert answer.status_code == 200, answer.text
    said = answer.json()
    need = said["memory"]["need_gb"]
    assert said["fits"] is (None if need is None else need <= gb)
    assert said["memory"]["room_gb"] == pytest.approx(gb)
    assert (said["time"]["basis"], said["cost"]["usd"]) == ("guess", 0.0)
    assert ("lr" in [one["field"] for one in said["cautions"]]) is (kind == "rl_run")
    assert client.get("/api/v1/jobs").json()["jobs"] == []


def test_every_door_says_the_same(
    client: TestClient, cockpit: Cockpit, room: Callable[[float], None]
) -> None:
    """--json of the command, the route, the command's own lines and the form's panel."""
    room(0.1)
    config = CONFIG | RISKY
    text = yaml.safe_dump(config)

    rest = client.post("/api/v1/jobs/check", json={"kind": "rl_run", "yaml": text}).json()
    line = by_line(cockpit, config)
    said = cockpit("enqueue", "rl_run", "-", "--dry-run", stdin=text.encode())
    form = client.post("/new/check", data={"kind": "rl_run", "yaml": text}).text

    resolved = line.pop("config")
    assert line == rest
    assert yaml.safe_load(said.out) == resolved
    need = f"{rest['memory']['need_gb']:.1f} GB"
    assert f"memory: {need} (estimate), 0.1 GB may be taken now: does not fit now" in said.err
    assert "It does not fit now" in form
    disk = f"{rest['disk']['need_gb']:.1f} GB"
    assert f"disk: {disk} of checkpoints at once, 40.0 GB free" in said.err
    assert "of 40.0 GB free: its checkpoints at once" in form
    assert need in form
    assert rest["put_off"]["reason"] == "OOM_ENVELOPE"
    assert rest["put_off"]["detail"] in said.err
    assert "time: unknown, no run of this kind and model ended here" in said.err
    assert "cost: unknown, counted as $0.00" in said.err
    for caution in rest["cautions"]:
        assert f"caution: {caution['message']}" in said.err
        assert caution["remedy"] in form


def test_a_sweep_is_checked_as_one(
    client: TestClient, cockpit: Cockpit, room: Callable[[float], None]
) -> None:
    """How many jobs, the memory of the largest, the time of all; each caution once."""
    room(8.0)
    sweep = {"lr": [1e-6, 5e-5], "max_new_tokens": [16, 32]}
    config = CONFIG | {"kl_coef": 0.001}
    wanted = {"kind": "rl_run", "config": config, "sweep": sweep}

    rest = client.post("/api/v1/jobs/check", json=wanted).json()
    line = by_line(cockpit, config | {"sweep": sweep})
    largest = client.post(
        "/api/v1/jobs/check", json={"kind": "rl_run", "config": config | {"max_new_tokens": 32}}
    ).json()

    points = line.pop("points")
    assert line == rest
    assert (rest["jobs"], rest["looked_at"], len(points)) == (4, 4, 4)
    assert rest["memory"] == largest["memory"]
    assert rest["time"]["seconds"] == 4 * largest["time"]["seconds"]
    assert [one["field"] for one in rest["cautions"]] == ["lr"]


def test_what_was_tried_and_what_changed_is_said(cockpit: Cockpit, db: Database) -> None:
    """With the job that has the result; a clone is told apart from its original."""
    done = queue(db)
    with night(db) as lane:
        lane.start().finish(verdict="gain")

    again = by_line(cockpit, CONFIG, "--clone-of", str(done))
    other = by_line(cockpit, CONFIG | {"seed": 3}, "--clone-of", str(done))
    said = cockpit("enqueue", "rl_run", "-", "--dry-run", stdin=yaml.safe_dump(CONFIG).encode())

    assert [one["job_id"] for one in again["tried"]] == [done]
    assert again["differences"] == []
    assert again["time"]["basis"] == "same"
    assert other["tried"] == []
    assert other["differences"] == [{"setting": "seed", "before": 0, "after": [3]}]
    assert f"already tried: job {done} has the same kind, settings and data" in said.err
    assert len(jobs.list_jobs(db)) == 1


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"config": CONFIG | {"group_k": 1}}, "group_k"),
        ({"config": CONFIG, "after": [7]}, "after"),
        ({"config": CONFIG, "clone_of": 7}, "clone_of"),
        ({"config": CONFIG, "not_before": "2001-01-01T00:00Z"}, "not_before"),
        ({"config": CONFIG, "sweep": {"lr": []}}, "sweep.lr"),
        ({"config": CONFIG, "priority": 101}, "priority"),
    ],
)
def test_what_the_queue_would_refuse_is_refused_alike(
    client: TestClient, db: Database, wanted: dict[str, Any], field: str
) -> None:
    """The same status and the same problems as when it is sent for good."""
    body = {"kind": "rl_run", **wanted}
    door = "/api/v1/sweeps" if "sweep" in wanted else "/api/v1/jobs"

    checked, sent = (client.post(path, json=body) for path in ("/api/v1/jobs/check", door))

    assert checked.status_code == sent.status_code == 422
    assert checked.json()["problems"] == sent.json()["problems"]
    assert checked.json()["problems"][0]["field"] == field
    assert jobs.list_jobs(db) == []


def test_a_run_after_a_failed_job_is_refused_before_it_is_sent(
    client: TestClient, db: Database
) -> None:
    """409, as it would be."""
    first = enqueue(db, "rl_run", CONFIG, actor="test")
    assert client.post(f"/api/v1/jobs/{first}/cancel").status_code == 200
    body = {"kind": "rl_run", "config": CONFIG | {"seed": 1}, "after": [first]}

    checked, sent = (
        client.post(path, json=body) for path in ("/api/v1/jobs/check", "/api/v1/jobs")
    )

    assert checked.status_code == sent.status_code == 409
    assert checked.json()["detail"] == sent.json()["detail"]


@pytest.mark.requirement("EX-11")
def test_a_prompt_of_each_source_is_shown_at_every_door(
    client: TestClient, cockpit: Cockpit, tmp_path: Path
) -> None:
    """Written as it will be asked, before anything is queued; data is text on a page too."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "Is 3 <b> 4?", "answer": "1"}\n', "utf-8")
    config = CONFIG | {
        "base": "some/model",
        "data": {"source": str(rows)},
        "prompting": {"template": "gsm8k_cot"},
        "corpus_min": 1,
    }

    rest = client.post("/api/v1/jobs/check", json={"kind": "rl_run", "config": config})
    line = by_line(cockpit, config)
    text = yaml.safe_dump(dict(config))
    words = cockpit("enqueue", "rl_run", "-", "--dry-run", stdin=text.encode()).err
    page = client.post("/new/check", data={"kind": "rl_run", "yaml": text}).text

    asked = {"name": "data", "row": "1", "text": "Q: Is 3 <b> 4?\nA:", "note": ""}
    expected = asked | {"which": "median", "answer": "1"}
    assert rest.json()["examples"] == line["examples"] == [expected]
    assert "a prompt of data (row 1):\nQ: Is 3 <b> 4?\nA:" in words
    assert "Q: Is 3 &lt;b&gt; 4?\nA:</pre>" in page


@pytest.mark.requirement("EX-11")
def test_forms_that_do_not_fit_are_said_at_every_door_before_a_run(
    client: TestClient, cockpit: Cockpit, tmp_path: Path
) -> None:
    """What pays against what a bench reads, and how each of them is asked."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "Is 3 odd?", "answer": "1"}\n', "utf-8")
    bench = {"name": "math", "source": str(rows), "template": "hendrycks_math"}
    config = CONFIG | {
        "base": "some/model",
        "data": {"source": str(rows)},
        "prompting": {"template": "gsm8k_cot"},
        "verifier": "gsm8k",
        "heldout": [bench | {"verifier": "minerva_math"}],
        "corpus_min": 1,
    }
    paid = "training pays The answer is 18. alone: what is learnt does not show on math"
    asked = "a form that is learnt under one prompt may be lost under another"

    rest = client.post("/api/v1/jobs/check", json={"kind": "rl_run", "config": config})
    text = yaml.safe_dump(dict(config))
    line = cockpit("enqueue", "rl_run", "-", stdin=text.encode()).err
    page = client.post("/new/check", data={"kind": "rl_run", "yaml": text}).text

    fields = [found["field"] for found in rest.json()["cautions"]]
    assert {"heldout.0.verifier", "heldout.0.template"} <= set(fields)
    for said in (rest.text, line, page):
        assert paid in said
        assert asked in said
