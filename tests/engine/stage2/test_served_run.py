"""Whole `stage2_ab` runs whose answers come from a server, brought the weights of each step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.__main__ import main
from engine.contract.errors import ConfigError
from engine.contract.events import Event
from engine.contract.registry import kinds, validate
from engine.contract.run_dir import ExitCode
from engine.contract.served import ServerConfig
from engine.contract.stage2.config import Stage2Config
from engine.contract.trace import read_trace
from engine.run.stop import Aborted, rl_hooks
from engine.sampling.vllm.infer_lane import speaks_infer
from engine.sampling.vllm.sync.proof import SyncError
from engine.sampling.vllm.sync.swift import SwiftTransfer
from engine.stage2 import serving
from engine.stage2.serving import require_ranks
from engine.stage2.stage2_ab import run as stage2_run
from tests.engine.conftest import add_attempt, opened
from tests.engine.sampling.vllm.canned import Canned
from tests.engine.sampling.vllm.conftest import free_port
from tests.engine.stage2.conftest import changed
from tests.engine.stage2.rollout.vision_server import VisionServer

Events = Callable[..., list[Event]]
Recipe = dict[str, Any]
VLLM = "custom__extra__rollout_matching__vllm"


@pytest.fixture
def server(vl_folder: Path) -> Iterator[VisionServer]:
    with VisionServer(vl_folder, free_port()) as server:
        yield server


def served_by(recipe: Recipe, server: VisionServer, vllm: Recipe | None = None) -> Recipe:
    """The recipe with a server that somebody else started."""
    one = {"base_url": server.serving.root, "group_port": 51216}
    section = {"mode": "server", "server": {"servers": [one]}} | (vllm or {})
    backend = "custom__extra__rollout_matching__rollout_backend"
    return changed(recipe, **{backend: "vllm", VLLM: section})


def series(events: list[Event]) -> dict[str, dict[int, float]]:
    """By name and step; seconds and figures of the sync left out."""
    found: dict[str, dict[int, float]] = {}
    for event in events:
        for name, value in event["values"].items() if event["type"] == "metric" else ():
            if not name.startswith(("time/", "sync/")):
                found.setdefault(name, {})[event["step"]] = value
    return found


@pytest.mark.requirement("RM-02", "RM-06", "RM-08", "AB-13")
def test_a_served_run_learns_what_a_run_on_its_own_model_learns(
    ab_recipe: Recipe, server: VisionServer, tmp_path: Path, events: Events
) -> None:
    """Greedy answers, so every loss, count and F1 is the same; each rollout was drawn by the
    weights of its step, under a seed of its own that the trace tells.
    """
    alone = add_attempt(tmp_path, ab_recipe, name="alone", kind="stage2_ab")
    served = add_attempt(tmp_path, served_by(ab_recipe, server), name="served", kind="stage2_ab")
    with opened(alone) as attempt:
        stage2_run(attempt)

    with opened(served) as attempt:
        result = stage2_run(attempt)

    ours, theirs = series(events(served)), series(events(alone))
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert ours[name] == pytest.approx(theirs[name], abs=1e-5), name
    assert result["serving"]["version"] == "0.32.0+standin"
    synced = [e["step"] for e in events(served, "span") if e["name"] == "weight-sync"]
    assert synced == [0, 1, 3, 5, 6]  # before what claims to be of these weights, and never twice
    trace = read_trace(served.trace)
    told = {e["args"]["step"]: e["args"] for e in trace if e.get("name") == "rollouts"}
    assert {step: one["seed_base"] for step, one in told.items()} == {
        step: (11 + (step - 1) * 1000003) & 0x7FFFFFFF for step in (2, 4, 6)
    }
    for one in told.values():
        decoding = one["decoding"]
        assert (decoding["backend"], decoding["servers"]) == ("vllm", [f"{server.serving.root}/v1"])
        assert decoding["sync"] == {"mode": "full", "fell_back": None}
    sent = [e["args"] for e in trace if e.get("name") == "rollout-call: sent"]
    assert all(call["decoding"]["temperature"] == 0 for call in sent)
    base = 11 + 1000003
    seeds = [body["seed"] for body in server.asked if body["seed"] >= base]
    assert sorted(seeds[:4]) == [base, base + 1, base + 2, base + 3]


def test_a_run_that_stopped_goes_on_with_the_weights_of_its_checkpoint(
    ab_recipe: Recipe, server: VisionServer, tmp_path: Path, events: Events
) -> None:
    """What the server held meanwhile is not trusted: the weights are sent again."""
    recipe = served_by(ab_recipe, server)
    whole = add_attempt(tmp_path, recipe, name="whole", kind="stage2_ab")
    with opened(whole) as attempt:
        stage2_run(attempt)
    run = add_attempt(tmp_path, recipe, name="broken", kind="stage2_ab")

    def third() -> bool:
        return len(series(events(run)).get("train/loss", ())) == 3

    with opened(run) as attempt, rl_hooks(should_abort=third), pytest.raises(Aborted):
        stage2_run(attempt)
    add_attempt(tmp_path, recipe, name="broken", kind="stage2_ab")
    with opened(run) as attempt:
        stage2_run(attempt)

    assert series(events(run))["train/loss"] == series(events(whole))["train/loss"]


@pytest.mark.requirement("RM-06")
def test_a_vision_tower_that_did_not_arrive_ends_the_run_by_name(
    ab_recipe: Recipe, server: VisionServer, tmp_path: Path, events: Events
) -> None:
    """Text would not show it; checksums do, before anybody is asked about a picture."""
    server.stale_tower = True
    recipe = changed(ab_recipe, training__learning_rate=0.3)
    run = add_attempt(tmp_path, served_by(recipe, server), kind="stage2_ab")

    code = main(["run", str(run.root)])

    assert code == ExitCode.DECLINED
    [finished] = events(run, "finished")
    result = finished["result"]
    assert result["cause"] == "STALE_WEIGHTS"
    assert "took the weights and holds others" in json.dumps(result)


REFUSED = [
    (
        {"sync": {"mode": "adapter"}, "enable_lora": True},
        {},
        "vllm.sync.mode: sends LoRA adapters, and model.tuning is full (got 'adapter')",
    ),
    (
        {"sync": {"mode": "adapter", "fallback_to_full": False}, "enable_lora": True},
        {"model__tuning": "dora"},
        "vLLM takes none of DoRA",
    ),
    (
        {"sync": {"mode": "adapter"}, "enable_lora": True},
        {"model__tuning": "lora", "model__lora_rank": 600},
        "is more than vLLM serves as an adapter (512)",
    ),
    ({}, {"custom__extra__rollout_matching__repetition_penalty": 3.0}, "is more than vLLM takes"),
    ({}, {"stage2_ab__channel_b__enable_pipeline": True}, "it needs training.packing: true"),
    (
        {},
        {
            "stage2_ab__channel_b__enable_pipeline": True,
            "training__packing": True,
            "training__per_device_train_batch_size": 1,
            "global_max_length": 400,
            "custom__extra__rollout_matching__post_rollout_pack_scope": "window",
        },
        "post_rollout_pack_scope: micro",
    ),
    ({"sync": {"mode": "adapter"}}, {}, "needs an engine that takes adapters"),
    ({"server": None}, {}, "is missing with vllm.mode server"),
]


@pytest.mark.requirement("RM-02")
@pytest.mark.parametrize(("vllm", "settings", "said"), REFUSED)
def test_what_servers_cannot_do_is_refused_when_it_is_enqueued(
    ab_recipe: Recipe, server: VisionServer, vllm: Recipe, settings: Recipe, said: str
) -> None:
    recipe = changed(served_by(ab_recipe, server, vllm), **settings)

    with pytest.raises(ConfigError) as refused:
        validate("stage2_ab", recipe)

    assert said in str(refused.value)


@pytest.mark.requirement("RM-07")
def test_adapters_of_several_learner_ranks_are_refused_before_a_model_loads(
    ab_recipe: Recipe, server: VisionServer
) -> None:
    """Also under plain torchrun, where the config asks for one rank; full sync is fine."""
    full = Stage2Config.model_validate(served_by(ab_recipe, server))
    adapter = {"sync": {"mode": "adapter"}, "enable_lora": True}
    adapters = Stage2Config.model_validate(served_by(ab_recipe, server, adapter))

    with pytest.raises(ConfigError, match="syncs an adapter, which 2 learner ranks cannot"):
        require_ranks(adapters, 2)
    require_ranks(full, 2)
    require_ranks(adapters, 1)


@pytest.mark.requirement("RM-02", "RM-06", "RM-08")
def test_ms_swifts_servers_answer_a_run_by_the_weights_of_each_step(
    ab_recipe: Recipe, server: VisionServer, tmp_path: Path, events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """By `/infer/` and flattened buckets; the broadcast, which wants GPUs, goes by hand. What it
    learns is what a run on its own model learns.
    """
    monkeypatch.setattr(serving, "swift_transfer", lambda *given: by_hand(server, *given))
    recipe = changed(ab_recipe, training__max_steps=4, training__eval_steps=2)
    alone = add_attempt(tmp_path, recipe, name="alone", kind="stage2_ab")
    one = {"base_url": server.serving.root, "group_port": 51216}
    vllm = {"mode": "server", "server": {"servers": [one], "routes": "infer"}}
    served = add_attempt(tmp_path, served_by(recipe, server, vllm), name="served", kind="stage2_ab")
    for run in (alone, served):
        with opened(run) as attempt:
            stage2_run(attempt)

    ours, theirs = series(events(served)), series(events(alone))
    for name in ours:
        assert ours[name] == pytest.approx(theirs[name], abs=1e-5), name
    synced = [e["step"] for e in events(served, "span") if e["name"] == "weight-sync"]
    assert synced == [0, 1, 2, 3, 4]


def test_weights_that_ms_swift_did_not_load_end_the_run_by_name(
    ab_recipe: Recipe, server: VisionServer, tmp_path: Path, events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Its verbs answer 200 all the same."""
    monkeypatch.setattr(serving, "swift_transfer", lambda *given: by_hand(server, *given))
    one = {"base_url": server.serving.root, "group_port": 51216}
    vllm = {"mode": "server", "server": {"servers": [one], "routes": "infer"}}
    recipe = changed(served_by(ab_recipe, server, vllm), training__learning_rate=0.3)
    run = add_attempt(tmp_path, recipe, kind="stage2_ab")
    server.lie = "nothing loaded"

    with opened(run) as attempt, pytest.raises(SyncError, match=r"took the weights of step 1 and"):
        stage2_run(attempt)


def test_ms_swifts_servers_want_a_gpu_and_merged_weights(
    ab_recipe: Recipe, server: VisionServer, tmp_path: Path
) -> None:
    one = {"base_url": server.serving.root, "group_port": 51216}
    vllm = {"mode": "server", "server": {"servers": [one], "routes": "infer"}}
    run = add_attempt(tmp_path, served_by(ab_recipe, server, vllm), kind="stage2_ab")

    with opened(run) as attempt, pytest.raises(ConfigError, match="by NCCL, and the trainer has"):
        stage2_run(attempt)


def by_hand(server: VisionServer, servers: Any, limits: Any, device: Any) -> SwiftTransfer:
    return SwiftTransfer(
        servers,
        limits=limits,
        join=lambda *_: server,
        memory=lambda size: torch.zeros(size, dtype=torch.uint8),
    )


@pytest.mark.parametrize(("path", "swift"), [("/health", False), ("/health/", True)])
def test_what_servers_speak_is_asked_of_them(path: str, swift: bool) -> None:
    with Canned() as canned:
        canned[path] = (200, {})
        other = "/health/" if path == "/health" else "/health"
        canned[other] = (307, {})
        root = canned.serving.root
        told = {"base_url": root, "group_port": 51216}
        config = ServerConfig.model_validate({"servers": [told], "timeout_s": 20})

        assert speaks_infer(config.resolved()[0], config) is swift


@pytest.mark.parametrize(
    ("vllm", "needs"),
    [
        ({"mode": "colocate"}, True),
        ({"mode": "server", "server": {"launch": {"replicas": 2}}}, True),
        ({}, False),
    ],
    ids=["colocated", "launched", "external"],
)
def test_a_run_needs_the_program_only_for_servers_of_its_own(
    ab_recipe: Recipe, server: VisionServer, vllm: Recipe, needs: bool
) -> None:
    """Where it is not there such a job waits; another's servers ask nothing of this box."""
    recipe = served_by(ab_recipe, server, vllm)
    if needs and vllm["mode"] == "colocate":
        del recipe["custom"]["extra"]["rollout_matching"]["vllm"]["server"]
    kind = kinds()["stage2_ab"]

    config = kind.config.model_validate(recipe)

    assert kind.serves(config)
    assert kind.needs_server_program(config) is needs


PACKED = {
    "training__packing": True,
    "training__per_device_train_batch_size": 1,
    "training__gradient_accumulation_steps": 6,
    "training__max_steps": 2,
    "training__eval_steps": 2,
    "global_max_length": 400,
    "custom__extra__rollout_matching__decode_batch_size": 2,
    "stage2_ab__schedule__b_ratio": 1.0,
}


@pytest.mark.requirement("AB-22")
def test_a_step_learns_from_one_decode_call_while_the_next_is_drawn(
    ab_recipe: Recipe, server: VisionServer, tmp_path: Path, events: Events
) -> None:
    """Six rollouts in calls of two: never more than one call ahead, the same rollouts and loss as
    without, and nothing drawn that the step does not learn.
    """
    plain = changed(served_by(ab_recipe, server), **PACKED)
    found = {}
    for name, pipelined in (("plain", False), ("pipelined", True)):
        recipe = changed(plain, stage2_ab__channel_b__enable_pipeline=pipelined)
        run = add_attempt(tmp_path, recipe, name=name, kind="stage2_ab")
        with opened(run) as attempt:
            stage2_run(attempt)
        rows = [json.loads(line) for line in _lines(run.rollouts / "train-000001.jsonl")]
        told = [one["values"] for one in events(run, "metric") if "train/loss" in one["values"]]
        found[name] = ([row["ids"] for row in rows], [row["record"] for row in rows], told)

    assert found["pipelined"][:2] == found["plain"][:2]
    first, other = found["pipelined"][2][0], found["plain"][2][0]
    for name in ("train/loss", "loss/ce", "train/grad_norm", "rollout/f1"):
        if name in other:
            assert first[name] == pytest.approx(other[name], rel=1e-4), name
    assert first["train/samples"] == 6.0
    assert 0 <= first["time/rollout_waited_s"] <= first["time/rollout_generate_s"]


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
