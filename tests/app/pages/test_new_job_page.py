"""The new job page: what a job will need before it is sent; one config behind two editors."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from app.forms.forms import raw_config, retyped
from app.web.shipped import recipes
from engine.contract.documents import parse_yaml
from engine.contract.errors import ConfigError
from engine.contract.registry import get_kind
from tests.app.night import CONFIG, night, queue
from worker.db.connection import Database
from worker.queue import control
from worker.read import feed, jobs

HTML = {"accept": "text/html"}
RL_RUN = get_kind("rl_run")
TYPED = {
    "kind": "rl_run",
    "set:base": "embedded:qwen3-tiny",
    "set:tuning": "full",
    "set:max_steps": "40",
    "set:lr": "3e-4",
    "set:warmup.target_heldout": "0.55",
}
"""The answers that stand for `CONFIG`."""


def words(text: str) -> str:
    """The page as it reads."""
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", text).split()))


def panel(text: str) -> str:
    """What stands beside the form."""
    return words(text.partition('id="check"')[2].partition("</aside>")[0].partition(">")[2])


def check(client: TestClient, data: dict[str, str]) -> str:
    answer = client.post("/new/check", data=data)
    assert answer.status_code == 200
    return answer.text


@pytest.fixture
def done(db: Database) -> int:
    """A finished run of `CONFIG`."""
    number = queue(db, name="first")
    with night(db) as lane:
        lane.start().finish()
    return number


@pytest.mark.requirement("UI-06")
def test_memory_time_and_cost_are_shown_before_anything_is_sent(
    client: TestClient, db: Database
) -> None:
    """Beside free memory and the floor, with what each is known from; nothing is queued."""
    text = words(check(client, TYPED))

    assert "✓ It fits now needs 0.5 GB estimate" in text
    assert re.search(r"may be taken now [\d.]+ GB [\d.]+ GB free, floor [\d.]+ GB", text)
    assert "takes nobody can tell no run of this kind and model ended here; counted as 1 h" in text
    assert "costs nobody can tell counted as $0.00, at $0 an hour" in text
    assert feed.last_change_id(db) == 0


@pytest.mark.requirement("UI-06")
def test_a_job_that_does_not_fit_is_told_before_it_is_queued(
    client: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The governor's own words."""
    db.settings = db.settings.model_copy(update={"memory_total_gb": 0.4})
    client.app.state.database.settings = db.settings  # type: ignore[attr-defined]

    text = words(check(client, TYPED))

    assert "✕ It does not fit now" in text
    assert "this machine has 0.4 GB" in text
    assert "OOM_ENVELOPE" in text


@pytest.mark.requirement("UI-06")
def test_what_ran_before_makes_the_forecast(client: TestClient, done: int) -> None:
    """The same experiment's own seconds, and its result is linked with its verdict."""
    text = words(check(client, TYPED))

    assert "as the same job did (1 run)" in text
    assert f"Already tried: job {done} has the same kind, settings and data; its verdict: gain" in (
        text
    )


@pytest.mark.requirement("UI-06")
def test_each_field_gets_its_own_problem_while_it_is_typed(client: TestClient) -> None:
    """Swapped beside the field; a field that was wrong and is emptied is cleared."""
    text = check(client, TYPED | {"set:lr": "-1", "set:group_k": "many"})

    beside = r'<div id="f-([\w.]+)-help" hx-swap-oob="innerMorph">(.*?)</div>'
    fields = dict(re.findall(beside, text, re.DOTALL))
    assert "(got -1); use a larger value" in fields["lr"]
    assert "problem" in fields["group_k"]
    assert "problem" not in fields["base"]
    told = re.search(r'name="told" value="([^"]+)"', text)
    assert told
    assert set(told[1].split()) == {"lr", "group_k"}

    cleared = check(client, TYPED | {"set:lr": "", "set:group_k": "", "told": told[1]})
    assert 'id="f-lr-help"' in cleared
    assert 'class="problem"' not in cleared


def test_what_is_missing_is_no_mistake_yet(client: TestClient) -> None:
    """An empty form says what is still to fill in, and shows no red field."""
    text = client.get("/new?kind=stage2_ab").text

    assert "Still to fill in: custom" in panel(text)
    assert 'class="field wrong"' not in text


@pytest.mark.requirement("LN-12")
def test_a_form_without_a_model_says_which_one_it_means_and_that_it_is_a_download(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Fifteen gigabytes are nobody's default in silence; an empty form has its model to fill in."""
    monkeypatch.delenv("FK_RL_BASE_MODEL", raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))

    empty = panel(client.get("/new").text)
    said = words(check(client, {"kind": "rl_run", "set:lr": "1e-5"}))

    assert "Still to fill in: base" in empty
    assert "the run begins with its download (15 GB) (got Qwen/Qwen2.5-7B-Instruct)" in said


@pytest.mark.requirement("UI-06")
def test_the_switch_between_form_and_yaml_keeps_every_value(client: TestClient) -> None:
    """There and back again the config is the same."""
    to_yaml = client.post("/new", data=TYPED | {"do": "yaml", "name": "mine", "tags": "a, b"}).text
    shown = html.unescape(to_yaml.partition("<textarea")[2].partition(">")[2].partition("<")[0])

    assert parse_yaml(shown) == raw_config(RL_RUN, TYPED)
    assert 'value="mine"' in to_yaml
    back = client.post(
        "/new", data={"kind": "rl_run", "yaml": shown, "name": "mine", "do": "form"}
    ).text
    fields = dict(re.findall(r'name="(set:[\w.]+)" value="([^"]+)"', back))
    fields["set:tuning"] = "full"
    assert raw_config(RL_RUN, fields) == raw_config(RL_RUN, TYPED)
    assert 'value="mine"' in back


@pytest.mark.parametrize(
    "raw",
    [
        CONFIG,
        {"base": "7", "tuning": "full", "warmup": {}, "lr": 1e-6, "force_headroom": True},
        {"base": "a: b", "data": {"source": "#x", "limit": 9}},
    ],
)
def test_a_config_typed_into_the_form_is_itself_again(raw: dict[str, Any]) -> None:
    """Texts that look like numbers or YAML stay texts."""
    answers = retyped(RL_RUN, raw)

    assert answers.unshown == []
    assert raw_config(RL_RUN, answers.typed) == raw


def test_a_yaml_that_the_form_cannot_show_stays_a_yaml_and_says_why(client: TestClient) -> None:
    """Nothing is dropped silently."""
    text = yaml.safe_dump(CONFIG | {"sweep": {"lr": [1e-4, 1e-3]}, "groop_k": 4})

    answer = client.post("/new", data={"kind": "rl_run", "yaml": text, "do": "form"})

    assert answer.status_code == 422
    assert "has no field in the form" in answer.text
    assert "groop_k" in answer.text
    assert "<textarea" in answer.text


@pytest.mark.requirement("JB-13")
def test_a_sweep_says_how_many_jobs_it_makes_and_makes_them(
    client: TestClient, db: Database
) -> None:
    """Time of all of them, before; the queue with their group, after."""
    text = yaml.safe_dump(CONFIG | {"sweep": {"lr": [1e-4, 3e-4, 1e-3], "seed": [0, 1]}})
    data = {"kind": "rl_run", "yaml": text, "name": "rates"}

    said = words(check(client, data))
    assert "A sweep of 6 jobs." in said
    assert "counted as 6 h" in said

    answer = client.post("/new", data=data, follow_redirects=False)
    assert answer.headers["location"] == "/queue#q-1"
    assert [job.sweep_id for job in jobs.next_jobs(db)] == [1] * 6


@pytest.mark.requirement("JB-12")
def test_a_job_that_was_tried_is_refused_with_its_result_and_can_be_forced(
    client: TestClient, db: Database, done: int
) -> None:
    """409 with the link, and one button that queues it all the same."""
    refused = client.post("/new", data=TYPED, headers=HTML)

    assert refused.status_code == 409
    assert f'<a href="/jobs/{done}">job {done}</a>' in refused.text
    assert 'name="do" value="force"' in refused.text
    assert jobs.next_jobs(db) == []

    forced = client.post("/new", data=TYPED | {"do": "force"}, follow_redirects=False)
    assert forced.status_code == 303
    assert len(jobs.next_jobs(db)) == 1


@pytest.mark.requirement("UI-06")
def test_a_clone_begins_as_the_original_and_shows_what_is_different(
    client: TestClient, done: int
) -> None:
    """Only what the original chose is filled in; each change stands beside its old value."""
    page = client.get(f"/new?clone={done}&as=form").text
    fields = dict(re.findall(r'name="((?:set:)?[\w.]+)" value="([^"]+)"', page))

    assert "Nothing: the settings are the same." in panel(page)
    assert fields["set:lr"] == "0.0003"
    assert fields["clone"] == str(done)
    assert "set:group_k" not in fields

    text = words(check(client, TYPED | {"clone": str(done), "set:lr": "1e-4"}))
    assert f"Different from job {done} setting job {done} now lr 0.0003 0.0001" in text


@pytest.mark.requirement("UI-06")
def test_a_run_leads_to_another_like_it_with_its_place_and_its_tags(
    client: TestClient, db: Database
) -> None:
    """One click from the run's page; the start time alone is not asked for again."""
    place = {"name": "mine", "priority": "7", "tags": "ada, seeds", "not_before": "+2h"}
    client.post("/new", data=TYPED | place | {"do": "queue"})
    [made] = jobs.next_jobs(db)
    own = client.get(f"/jobs/{made.id}").text
    assert re.search(rf'<a [^>]*href="/new\?clone={made.id}"[^>]*>Another like it</a>', own)

    page = client.get(f"/new?clone={made.id}&as=form").text

    fields = dict(re.findall(r'name="((?:set:)?[\w.]+)" value="([^"]*)"', page))
    assert {name: fields[name] for name in place} == place | {"not_before": ""}
    assert fields["set:lr"] == "0.0003"


@pytest.mark.requirement("UI-06")
def test_a_sweep_from_a_job_shows_every_value_that_each_setting_gets(
    client: TestClient, done: int
) -> None:
    """Not the first point alone, and not only the points that were looked at."""
    text = yaml.safe_dump(CONFIG | {"sweep": {"lr": [3e-4, 1e-4], "seed": [*range(15)]}})

    said = words(check(client, {"kind": "rl_run", "yaml": text, "clone": str(done)}))

    assert "A sweep of 30 jobs." in said
    assert f"setting job {done} in the sweep lr 0.0003 0.0003, 0.0001" in said
    assert "seed 0 0, 1, 2, 3, 4" in said
    assert "10, 11 and 3 more" in said


@pytest.mark.requirement("UI-06")
def test_a_clone_remembers_what_it_began_from(client: TestClient, db: Database, done: int) -> None:
    """In its row, its JSON and on its page; a sweep's jobs too, a tampered number in none."""
    axes = yaml.safe_dump(CONFIG | {"sweep": {"lr": [5e-4, 6e-4]}})
    sweep = {"kind": "rl_run", "clone": str(done), "yaml": axes}
    assert client.post("/new", data=TYPED | {"clone": str(done), "set:lr": "1e-4"}).is_success
    assert client.post("/new", data=sweep).is_success
    assert client.post("/new", data=TYPED | {"clone": "99", "set:lr": "2e-4"}).is_success

    made = sorted(jobs.next_jobs(db), key=lambda job: job.id)
    assert [job.clone_of for job in made] == [done, done, done, None]
    assert client.get(f"/api/v1/jobs/{made[0].id}").json()["clone_of"] == done
    assert f'href="/jobs/{done}"' in client.get(f"/jobs/{made[0].id}?tab=repro").text
    text = words(client.get(f"/jobs/{made[0].id}?tab=config").text)
    assert "lr 0.0003 0.0001" in text[text.index("What differs from") :]


def test_a_job_cannot_begin_from_one_that_does_not_exist(client: TestClient) -> None:
    """The setting is named, and nothing is queued."""
    body = {"kind": "rl_run", "config": {"base": "embedded:qwen3-tiny"}, "clone_of": 99}
    answer = client.post("/api/v1/jobs", json=body)

    assert answer.status_code == 422
    assert "clone_of" in answer.text
    assert client.get("/api/v1/jobs").json()["jobs"] == []


def test_the_place_in_the_queue_is_asked_for_too(client: TestClient, db: Database) -> None:
    """Priority, start and tags, with their mistakes beside them."""
    wrong = client.post("/new", data=TYPED | {"priority": "high", "not_before": "never"})
    right = client.post(
        "/new",
        data=TYPED | {"priority": "7", "not_before": "+2h", "tags": "a, b"},
        follow_redirects=False,
    )

    assert wrong.status_code == 422
    assert 'name="priority" value="high"' in wrong.text
    assert right.status_code == 303
    job = jobs.get_job(db, 1)
    assert (job.priority, job.tags, job.not_before is not None) == (7, ["a", "b"], True)


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join(f'*a{n - 1}' for _ in range(9))}]\n" for n in range(1, 9)
)
"""A few lines that stand for 43 million values."""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (BOMB, "has too many values behind its aliases"),
        ("a: &a [*a]", "has too many values behind its aliases"),
        ("a: !!python/object/apply:os.system [id]", "is not valid YAML"),
        ("x: " + "y" * 300_000, "is too large for a config"),
        ("[" * 5000, "is not valid YAML"),
    ],
    ids=["bomb", "loop", "object", "long", "deep"],
)
def test_hostile_yaml_is_refused_with_a_reason(
    client: TestClient, db: Database, text: str, problem: str
) -> None:
    """At once, by the check and by the button."""
    data = {"kind": "rl_run", "yaml": text}

    assert problem in words(check(client, data))
    answer = client.post("/new", data=data)
    assert answer.status_code == 422
    assert problem in words(answer.text)
    assert feed.last_change_id(db) == 0


def test_ten_megabytes_are_refused_unread(client: TestClient, db: Database) -> None:
    """By the guard, for check and button alike."""
    data = {"kind": "rl_run", "yaml": "x" * 10_000_000}

    assert client.post("/new", data=data).status_code == 413
    assert client.post("/new/check", data=data).status_code == 413
    assert feed.last_change_id(db) == 0


def test_an_alias_that_people_use_is_no_bomb() -> None:
    """Merge keys and repeated parts stay allowed."""
    text = "a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]\n"

    assert parse_yaml(text)["b"] == {"x": 1, "y": 2}
    with pytest.raises(ConfigError):
        parse_yaml(BOMB)


@pytest.mark.parametrize(
    "query",
    ["kind=nope", "clone=99", "clone=0", "proposal=X-1&date=2026-02-30", "as=<b>&kind=<b>"],
)
def test_an_address_that_names_nothing_is_explained(client: TestClient, query: str) -> None:
    """Never a 500, and nothing of it runs."""
    answer = client.get(f"/new?{query}", headers=HTML)

    assert answer.status_code in {404, 409, 422}
    assert "<b>&" not in answer.text


# --- where to start ---


@pytest.mark.requirement("UI-15")
def test_a_recipe_opens_as_it_was_written_with_its_comments(client: TestClient) -> None:
    """And with its name; the kind is the recipe's."""
    text = html.unescape(client.get("/new?recipe=stage2_ab").text)

    shown = text.partition("<textarea")[2].partition(">")[2].partition("</textarea>")[0]
    assert shown == next(one.path for one in recipes() if one.name == "stage2_ab").read_text()
    assert 'name="kind" value="stage2_ab"' in text
    assert 'value="stage2_ab"' in text


@pytest.mark.requirement("UI-15")
def test_every_recipe_can_be_started_from(client: TestClient) -> None:
    """The list names each, and none has a problem of its own but a model that is not here."""
    listed = client.get("/new").text

    for recipe in recipes():
        assert f'href="/new?recipe={recipe.name}"' in listed
        data = {"kind": recipe.kind, "yaml": recipe.path.read_text("utf-8")}
        assert "Not yet" not in words(check(client, data)), recipe.name


@pytest.mark.requirement("UI-15")
def test_a_recipe_that_is_none_is_told_with_the_nearest_one(client: TestClient) -> None:
    """As a person reads it."""
    answer = client.get("/new?recipe=instrukt", headers=HTML)

    assert answer.status_code == 422
    assert "did you mean instruct?" in html.unescape(answer.text)


@pytest.mark.requirement("UI-15")
@pytest.mark.parametrize("text", ["", "  \n", "# nothing\n", "{}"])
def test_an_empty_document_queues_nothing_whatever_the_defaults_stand_for(
    client: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """With a default model in the environment all of it would be valid."""
    monkeypatch.setenv("FK_RL_BASE_MODEL", "embedded:qwen3-tiny")

    answer = client.post("/new", data={"kind": "rl_run", "yaml": text, "do": "run"})

    assert answer.status_code == 422
    assert "start from a recipe or a run" in answer.text
    assert feed.last_change_id(db) == 0


@pytest.mark.requirement("UI-15")
def test_runs_with_a_gain_lead_what_one_can_start_from_and_demos_come_last(
    client: TestClient, db: Database, done: int, tmp_path: Path
) -> None:
    """The demo has a gain; a run of one's own stands before it all the same."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "1+1?", "answer": "2"}\n', "utf-8")
    mine = queue(db, name="mine", base="acme/small", data={"source": str(rows)}, corpus_min=1)
    control.cancel(db, mine, actor="test")

    listed = client.get("/new").text

    assert listed.index(f"/new?clone={mine}") < listed.index(f"/new?clone={done}")


@pytest.mark.requirement("UI-15")
def test_every_setting_of_a_kind_can_be_completed_and_explained(client: TestClient) -> None:
    """Also those that are passed on to the Trainer."""
    found = {word["name"]: word for word in client.get("/new/words?kind=stage2_ab").json()}

    assert found["model.tuning"]["choices"]
    assert "Trainer" in found["training.learning_rate"]["help"]
    assert all(word["help"] for word in found.values())


@pytest.mark.requirement("UI-15")
def test_columns_that_nobody_knows_are_offered_while_the_config_does_not_hold_yet(
    client: TestClient, tmp_path: Path
) -> None:
    """Fields inside objects too."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"asks": "1+1?", "meta": {"gold": "2"}}\n', "utf-8")
    data = {"kind": "rl_run", "yaml": f"base: acme/small\ndata: {{source: {rows}}}\n"}

    text = words(check(client, data))

    assert "prompt ← no column asks meta meta.gold answer ← no column" in text
