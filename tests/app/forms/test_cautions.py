"""What a config had better not say is said at every door, and the job is queued all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from tests.app.night import CONFIG

COLLAPSED = {"lr": 5e-5, "kl_coef": 0.001}


@pytest.mark.requirement("EX-21")
def test_a_collapsed_recipe_is_cautioned_over_rest(client: TestClient) -> None:
    """201 with field, value, problem and remedy; a sound recipe has no entry."""
    risky, sound = (
        client.post("/api/v1/jobs", json={"kind": "rl_run", "config": CONFIG | settings})
        for settings in (COLLAPSED, {})
    )

    assert risky.status_code == sound.status_code == 201
    assert [found["field"] for found in risky.json()["cautions"]] == ["lr"]
    assert sound.json()["cautions"] == []


@pytest.mark.requirement("EX-21")
def test_a_collapsed_recipe_is_cautioned_on_the_command_line(cockpit: Callable[..., Any]) -> None:
    """On standard error, so that the job's number alone stays on standard output."""
    settings = [f"--set={name}={value}" for name, value in COLLAPSED.items()]

    said = cockpit("enqueue", "rl_run", "-", *settings, stdin=b"base: embedded:qwen3-tiny\n")

    assert said.code == 0
    assert said.out.strip().isdigit()
    assert "caution: lr: with kl_coef=0.001 is what collapsed" in said.err


@pytest.mark.requirement("EX-21")
def test_a_collapsed_recipe_is_cautioned_on_its_page(client: TestClient) -> None:
    """Where the form leads to; a sound run's page is silent."""
    made = [
        client.post("/api/v1/jobs", json={"kind": "rl_run", "config": CONFIG | settings}).json()
        for settings in (COLLAPSED, {})
    ]

    risky, sound = (client.get(f"/jobs/{job['id']}").text for job in made)

    assert "Caution: lr: with kl_coef=0.001 is what collapsed" in risky
    assert "Caution:" not in sound


@pytest.mark.requirement("JB-13")
@pytest.mark.parametrize(("data", "said"), [({}, ["sweep.seed"]), ({"split_seed": 0}, [])])
def test_a_sweep_over_seeds_that_cannot_be_compared_is_cautioned_at_every_door(
    client: TestClient, cockpit: Callable[..., Any], data: dict[str, Any], said: list[str]
) -> None:
    """Each seed holds out other rows; one split seed for all of them is the way out."""
    config = CONFIG | {"data": data, "sweep": {"seed": [1, 2]}}
    text = yaml.safe_dump(config)
    words = (
        "sweep.seed: holds out other rows at each value: these runs cannot be compared row by row"
    )

    by_rest = client.post("/api/v1/sweeps", json={"kind": "rl_run", "yaml": text}).json()
    by_form = client.post("/new/check", data={"kind": "rl_run", "yaml": text}).text
    by_line = cockpit("enqueue", "rl_run", "-", "--force", stdin=text.encode()).err

    assert [found["field"] for found in by_rest["cautions"]] == said
    assert ("these runs cannot be compared row by row" in by_form) is bool(said)
    assert (f"caution: {words}; set data.split_seed to one number" in by_line) is bool(said)
