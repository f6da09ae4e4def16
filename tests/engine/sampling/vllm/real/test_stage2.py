"""Whole `stage2_ab` runs over a real vLLM: pictures go out, the vision tower is synced too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.events import Event
from engine.contract.run_dir import ExitCode, RunDir
from engine.contract.serving import Serving
from engine.run.launch import CRASHED
from engine.stage2.embedded import tiny_vl
from tests.deadline import eventually
from tests.engine import killing
from tests.engine.conftest import add_attempt
from tests.engine.rank_process import rank_process
from tests.engine.sampling.vllm.conftest import VLLM
from tests.engine.stage2.conftest import ab_recipe, changed, shapes_file
from tests.engine.stage2.test_served_run import series

__all__ = ["ab_recipe", "shapes_file"]

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

Events = Callable[..., list[Event]]
Recipe = dict[str, Any]


@pytest.fixture(scope="session")
def vl_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded architecture: vLLM on a CPU serves no heads of less than 32 numbers."""
    return tiny_vl.save(tmp_path_factory.mktemp("vl"), seed=0)


def served(tmp_path: Path, recipe: Recipe, name: str, **vllm: Any) -> RunDir:
    backend = "custom__extra__rollout_matching__rollout_backend"
    section = "custom__extra__rollout_matching__vllm"
    raw = changed(recipe, **{backend: "vllm", section: vllm})
    serving = Serving(serve_cmd=VLLM, timeout_s=900)
    return add_attempt(tmp_path, raw, name=name, kind="stage2_ab", serving=serving)


@pytest.fixture
def recipe(ab_recipe: Recipe) -> Recipe:
    return changed(ab_recipe, training__max_steps=4, training__eval_steps=2)


@pytest.mark.requirement("RM-02", "RM-06", "AB-13")
def test_a_stage2_run_learns_by_vllm_what_it_learns_by_its_own_model(
    recipe: Recipe, tmp_path: Path, events: Events
) -> None:
    """Greedy: the same losses, counts and F1, by a server that the run starts."""
    alone = add_attempt(tmp_path, recipe, name="alone", kind="stage2_ab")
    run = served(tmp_path, recipe, "served", mode="server", server={"launch": {"replicas": 1}})

    assert killing.attempt(alone.root, within_s=600) == ExitCode.DONE
    assert killing.attempt(run.root, within_s=1200) == ExitCode.DONE

    ours, theirs = series(events(run)), series(events(alone))
    for name in ours:
        assert ours[name] == pytest.approx(theirs[name], abs=1e-4), name
    syncs = [e for e in events(run, "span") if e["name"] == "weight-sync"]
    assert [e["step"] for e in syncs] == [0, 1, 2, 3, 4]
    assert min(e["bytes"] for e in syncs) > 5_000_000


@pytest.mark.requirement("RM-07")
def test_two_ranks_learn_by_vllm_and_a_killed_one_leaves_nobody_waiting(
    recipe: Recipe, tmp_path: Path, events: Events
) -> None:
    """The job ends by name; what goes on from its checkpoint learns what one rank learns."""
    one_each = changed(
        recipe,
        training__per_device_train_batch_size=1,
        training__save_steps=1,
        stage2_ab__schedule__b_ratio=1.0,
    )
    alone = add_attempt(
        tmp_path,
        changed(one_each, training__gradient_accumulation_steps=4),
        name="alone",
        kind="stage2_ab",
    )
    two = one_each | {"ranks": 2}
    server = {"mode": "server", "server": {"launch": {"replicas": 1}}}
    run = served(tmp_path, two, "two", **server)

    with subprocess.Popen([sys.executable, "-m", "engine", "run", str(run.root)]) as engine:
        eventually(lambda: series(events(run)).get("train/loss"), "no step was made", 900)
        rank_process(run, 1).kill()
        assert engine.wait(120) == CRASHED
    assert events(run, "note")[-1]["text"].startswith("rank 1 of 2 was killed by SIGKILL")
    served(tmp_path, two, "two", **server)
    assert killing.attempt(run.root, within_s=1200) == ExitCode.DONE
    assert killing.attempt(alone.root, within_s=600) == ExitCode.DONE

    ours, theirs = series(events(run))["train/loss"], series(events(alone))["train/loss"]
    assert ours == pytest.approx(theirs, abs=1e-4)


def colocated(recipe: Recipe, tmp_path: Path, events: Events) -> None:
    """Sampled answers this time: every token of them is one that the trainer's model could draw."""
    lora = changed(
        recipe,
        model__tuning="lora",
        model__lora_rank=4,
        training__max_steps=2,
        custom__extra__rollout_matching__decoding__temperature=0.8,
        custom__extra__rollout_matching__decoding__top_p=0.9,
    )
    sync = {"mode": "adapter", "fallback_to_full": False}
    run = served(tmp_path, lora, "colocated", mode="colocate", enable_lora=True, sync=sync)

    assert killing.attempt(run.root, within_s=1500) == ExitCode.DONE

    spans = events(run, "span")
    assert {e["mode"] for e in spans if e["name"] == "weight-sync"} == {"adapter"}
    rests = [e for e in spans if e["name"] == "engine-rest"]
    assert rests
    assert min(e["given_back_gb"] for e in rests) > 0.2


if killing.LONG_FORM:  # it starts the engine three times

    @pytest.mark.requirement("RM-02", "RM-06")
    def test_a_colocated_engine_takes_the_adapter_and_gives_its_memory_back(
        recipe: Recipe, tmp_path: Path, events: Events
    ) -> None:
        """Sampled answers this time: every one is what the trainer's model could draw."""
        colocated(recipe, tmp_path, events)
