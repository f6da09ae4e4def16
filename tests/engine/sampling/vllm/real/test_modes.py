"""One recipe in every way that a run can have its servers: all draw what one server draws."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main
from engine.contract.events import Event
from engine.contract.run_dir import ExitCode, RunDir
from tests.engine import killing
from tests.engine.conftest import add_attempt, events_of
from tests.engine.sampling.vllm.conftest import serving_by
from tests.engine.sampling.vllm.test_runs import drawn, kill_a_server_after_a_step, wide_base

__all__ = ["wide_base"]

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1200)]
Events = Callable[..., list[Event]]


@pytest.fixture(scope="module")
def asked(base_recipe: dict[str, Any], wide_base: Path) -> dict[str, Any]:
    """Two steps of a LoRA adapter that learns at once, at another temperature than 1."""
    return base_recipe | {
        "base": str(wide_base),
        "tuning": "lora",
        "lora_rank": 4,
        "rollout_backend": "vllm",
        "max_steps": 2,
        "heldout_every": 2,
        "tasks_per_step": 16,
        "group_k": 16,
        "temp": 0.8,
        "lr": 1e-2,
    }


@pytest.fixture(scope="module")
def unbroken(asked: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """With one server of its own, which is sent an adapter at each step."""
    run = add_attempt(tmp_path_factory.mktemp("unbroken"), asked, serving=serving_by("vllm"))
    assert killing.attempt(run.root, within_s=900) == ExitCode.DONE
    return run


@pytest.mark.requirement("RL-09", "RM-06")
def test_the_trainer_reads_what_the_server_drew_within_a_ten_thousandth_of_a_nat(
    unbroken: RunDir,
) -> None:
    """In fp32, after each adapter that was sent, while a step moves log-probabilities by far more;
    and the run learns."""
    told = [event["values"] for event in events_of(unbroken, "metric")]
    gaps = [one["train/sampler_gap_max"] for one in told if "train/sampler_gap_max" in one]
    moved = [one["sync/moved"] for one in told if "sync/moved" in one]
    syncs = [e for e in events_of(unbroken, "span") if e["name"] == "weight-sync"]

    assert len(gaps) == len(moved) == 2
    assert max(gaps) < 1e-4 < min(moved)
    assert {e["mode"] for e in syncs} == {"adapter"}
    [finished] = events_of(unbroken, "finished")
    assert finished["result"]["lift"] > 0


@pytest.mark.requirement("RM-02")
def test_a_colocated_engine_gives_its_memory_back_before_the_learner_learns(
    asked: dict[str, Any], unbroken: RunDir, tmp_path: Path, events: Events
) -> None:
    """It has no port, holds nothing while the step's update runs, and is started again with the
    weights of the step; what it draws is what a server beside the trainer draws."""
    recipe = asked | {"max_steps": 1, "heldout_every": 1, "vllm": {"mode": "colocate"}}
    run = add_attempt(tmp_path, recipe, serving=serving_by("vllm"))

    assert killing.attempt(run.root, within_s=900) == ExitCode.DONE

    named = {"engine-rest", "weight-sync"}
    spans = [e for e in events(run, "span") if e["name"] in named]
    [at] = [place for place, e in enumerate(spans) if e["name"] == "engine-rest"]
    assert spans[at]["given_back_gb"] > 0.3
    assert spans[:at]
    assert spans[at + 1 :], "it was not brought the weights of the step"
    first = drawn(run)
    assert first == drawn(unbroken)[: len(first)]
    [finished] = events(run, "finished")
    assert finished["result"]["serving"]["url"].endswith("(a Unix socket)")


@pytest.mark.requirement("EX-20", "RM-05")
def test_of_two_servers_one_is_killed_and_the_run_draws_what_an_unbroken_one_draws(
    asked: dict[str, Any],
    unbroken: RunDir,
    tmp_path: Path,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SIGKILL between two steps: it is started again within the next, whose draws are repeated
    under their seeds."""
    two = {"vllm": {"server": {"launch": {"replicas": 2}}}}
    run = add_attempt(tmp_path, asked | two, serving=serving_by("vllm"))
    kill_a_server_after_a_step(monkeypatch)

    assert main(["run", str(run.root)]) == ExitCode.DONE

    assert drawn(run) == drawn(unbroken)
    assert [e["code"] for e in events(run, "note") if e["code"] == "SERVING_RESTART"]
    asked_of = {line["server"] for line in _lines(run)}
    assert len(asked_of) == 2


def _lines(run: RunDir) -> list[dict[str, Any]]:
    files = sorted(run.rollouts.glob("train-*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]
