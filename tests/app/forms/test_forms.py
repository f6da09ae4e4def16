"""The form: one more door to the one validation path."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from app.forms.forms import PREFIX, SWITCH, build, raw_config
from engine.contract.registry import get_kind, kinds, validate
from tests.app.conftest import Said
from tests.app.night import CONFIG
from worker.db.connection import Database
from worker.read import feed, jobs

RL_RUN = get_kind("rl_run")


def fields(**settings: str) -> dict[str, str]:
    """A form as the browser sends it; `__` stands for the dot."""
    typed = {PREFIX + name.replace("__", "."): value for name, value in settings.items()}
    return {"kind": "rl_run", **typed}


def test_every_setting_of_every_kind_is_a_field_of_its_form() -> None:
    """A new kind has a form without a line of code for it."""
    for kind in kinds().values():
        shown = {field.setting.name for group in build(kind, {}).groups for field in group.fields}
        required = [name for name, field in kind.config.model_fields.items() if field.is_required()]

        # a required section is there by its settings
        assert all(any(f"{name}.".startswith(f"{top}.") for name in shown) for top in required)
        assert len(shown) >= len(kind.config.model_fields) - 5


def test_an_empty_field_is_not_sent_and_a_filled_one_has_its_type() -> None:
    """The default stays the kind's business; text that looks like a number stays text."""
    typed = fields(
        base="7", lr="1e-4", group_k="8", data__source="", tuning="full", data__limit=" 9 "
    )

    assert raw_config(RL_RUN, typed) == {
        "base": "7",
        "lr": 1e-4,
        "group_k": 8,
        "tuning": "full",
        "data": {"limit": 9},
    }


def test_an_optional_section_comes_in_by_its_box_or_by_a_field() -> None:
    """Ticked and empty means: with all its defaults."""
    ticked = raw_config(RL_RUN, {SWITCH + "warmup": "on"})
    filled = raw_config(RL_RUN, fields(warmup__lr="0.01"))

    assert ticked == {"warmup": {}}
    assert filled == {"warmup": {"lr": 0.01}}
    assert raw_config(RL_RUN, {}) == {}


@pytest.mark.requirement("JB-02")
def test_a_filled_form_queues_the_same_job_as_rest_and_the_command_line(
    client: TestClient, db: Database, cockpit: Callable[..., Said]
) -> None:
    """One validation path: the resolved configs are equal, whichever door was taken."""
    typed = fields(
        base="embedded:qwen3-tiny",
        tuning="full",
        max_steps="40",
        lr="3e-4",
        warmup__target_heldout="0.55",
    )
    by_form = client.post("/new", data=typed | {"name": "by form"}, follow_redirects=False)
    client.post("/new", data={"kind": "rl_run", "yaml": yaml.safe_dump(CONFIG), "do": "force"})
    client.post("/api/v1/jobs", json={"kind": "rl_run", "config": CONFIG, "force": True})
    cockpit("enqueue", "rl_run", "-", "--force", stdin=json.dumps(CONFIG).encode())

    made = jobs.list_jobs(db)
    assert (by_form.status_code, by_form.headers["location"]) == (303, "/jobs/1")
    assert len(made) == 4
    assert all(job.config == made[0].config for job in made)
    assert [job.created_by.partition(":")[0] for job in made] == [
        "cli",
        "rest",
        "browser",
        "browser",
    ]


@pytest.mark.requirement("JB-02")
def test_every_door_words_a_wrong_config_the_same_way_and_writes_nothing(
    client: TestClient, db: Database, cockpit: Callable[..., Said]
) -> None:
    """Field, value, problem, remedy; the nearest name for an unknown setting."""
    wrong = {"base": "embedded:qwen3-tiny", "tuning": "full", "groop_k": 4, "lr": -1}
    text = yaml.safe_dump(wrong)

    rest = client.post("/api/v1/jobs", json={"kind": "rl_run", "config": wrong})
    pasted = client.post("/new", data={"kind": "rl_run", "yaml": text})
    typed = client.post("/new", data=fields(base="embedded:qwen3-tiny", tuning="full", lr="-1"))
    said = cockpit("enqueue", "rl_run", "-", stdin=text.encode())

    lines = [problem["message"] for problem in rest.json()["problems"]]
    assert len(lines) == 2
    assert "groop_k: is not a setting; did you mean group_k?" in lines
    assert said.err.splitlines() == [f"cockpit: {line}" for line in lines]
    for line in lines:
        assert line in _words(pasted.text)
    assert next(line for line in lines if line.startswith("lr")) in _words(typed.text)
    assert (rest.status_code, pasted.status_code, typed.status_code, said.code) == (
        422,
        422,
        422,
        2,
    )
    assert feed.last_change_id(db) == 0


def _words(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", "", text).split())


@pytest.mark.requirement("JB-02")
def test_a_problem_stands_beside_its_field_and_nothing_typed_is_lost(client: TestClient) -> None:
    """One wrong field must not cost the other answers."""
    typed = fields(base="embedded:qwen3-tiny", group_k="many", seed="7", warmup__lr="2")

    text = client.post("/new", data=typed | {"name": "<b>"}).text

    wrong = re.findall(r'<div class="field wrong">\s*<label for="f-([\w.]+)"', text)
    assert wrong == ["group_k", "warmup.lr"]
    assert 'name="set:seed" value="7"' in text
    assert 'value="many"' in text
    assert "&lt;b&gt;" in text
    assert 'name="with:warmup" checked' in text


@pytest.mark.parametrize(
    ("path", "data", "status"),
    [
        ("/new", {"kind": "nope"}, 422),
        ("/new", {"yaml": ""}, 422),
        ("/new", {"kind": "rl_run", "yaml": "a: [1"}, 422),
        ("/new", {"kind": "rl_run", "yaml": "- 1"}, 422),
        ("/new", {"kind": "rl_run", "name": "x" * 500}, 422),
    ],
)
def test_a_form_that_is_no_job_comes_back_with_the_reason(
    client: TestClient, db: Database, path: str, data: dict[str, str], status: int
) -> None:
    """Never a 500, never a row."""
    answer = client.post(path, data=data, headers={"accept": "text/html"})

    assert answer.status_code == status
    assert jobs.list_jobs(db) == []


def test_a_body_that_is_no_form_is_refused(client: TestClient) -> None:
    """The page's door takes forms; programs have REST."""
    assert client.post("/new", json={}).status_code == 415


@given(
    typed=st.dictionaries(
        st.sampled_from(["set:base", "set:lr", "set:group_k", "set:data.limit", "with:warmup",
                         "set:tuning", "set:warmup.lr", "name", "set:vllm_pin"]),
        st.text(max_size=30),
    )
)  # fmt: skip
@example(typed={"set:base": "~0"})
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_answer_breaks_the_form(client: TestClient, typed: dict[str, str]) -> None:
    """Whatever is typed, it is a job or it is explained."""
    data = {"kind": "rl_run", **typed}

    answer = client.post("/new", data=_encodable(data), follow_redirects=False)

    assert answer.status_code in {303, 409, 422}


def _encodable(data: dict[str, str]) -> dict[str, str]:
    return {name: value.encode(errors="replace").decode() for name, value in data.items()}


def test_the_defaults_of_the_schema_are_the_defaults_of_the_config() -> None:
    """What the form shows as a placeholder is what an empty field becomes."""
    optional: dict[str, Any] = {
        "warmup": {},
        "format": {"pretrain": {}},
        "requant": {"formats": ["int8"]},
        "evaluate": {"benches": [{"source": "embedded:addition"}]},
        "rollout_backend": "vllm",
        "vllm": {"server": {"launch": {}}},
    }
    config = validate("rl_run", {"base": "embedded:qwen3-tiny", "tuning": "lora", **optional})
    resolved = config.model_dump(mode="json")

    for group in build(RL_RUN, {}).groups:
        for field in group.fields:
            value = resolved
            for part in field.setting.name.split("."):
                value = value[part]
            given = {"base", "tuning", "requant.formats", "evaluate.benches", "rollout_backend"}
            if field.setting.name not in given:
                assert value == field.setting.default, field.setting.name
