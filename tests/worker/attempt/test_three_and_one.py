"""Three servers and one learner from the queue, with a proxy that writes down what crosses.

Against stand-ins always, and with `make test-vllm` against three real vLLM of one thread each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from engine.contract.run_dir import RunDir
from engine.contract.sources.records import read_records
from engine.contract.trace import read_trace
from engine.stage2.embedded import tiny_vl
from engine.stage2.rollout.base import seed_base
from engine.stage2.rollout.pictures import DataURLs
from tests.engine.sampling.vllm import boundary
from tests.engine.sampling.vllm.conftest import SERVERS, VLLM, free_port
from tests.engine.stage2.conftest import (
    QUESTION,
    ab_recipe,
    changed,
    matching_recipe,
    shapes_file,
    vl_folder,
)
from tests.engine.stage2.rollout.vision_server import VisionServer
from worker.db.connection import Database
from worker.drain import drain
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.read import jobs

__all__ = ["ab_recipe", "matching_recipe", "shapes_file", "vl_folder"]

pytestmark = pytest.mark.timeout(1800)
_SECTION = "custom__extra__rollout_matching"
_ONE_THREAD = "/usr/bin/env OMP_NUM_THREADS=1 VLLM_CPU_OMP_THREADS_BIND=nobind"
_ROLLOUTS = 5
_STEPS = 2
_BODY = {
    *("model", "messages", "n", "seed", "temperature", "top_p", "top_k", "min_p"),
    *("repetition_penalty", "max_tokens", "ignore_eos", "stop_token_ids", "skip_special_tokens"),
    *("return_token_ids", "return_tokens_as_token_ids", "logit_bias", "logprobs", "top_logprobs"),
}


@pytest.fixture(params=SERVERS)
def base(request: pytest.FixtureRequest, vl_folder: Path, tmp_path: Path) -> Path:
    """A model that the servers of this test serve: vLLM takes no heads of less than 32 numbers."""
    if request.param == "stand-in":
        return vl_folder
    (tmp_path / "wide").mkdir()
    return tiny_vl.save(tmp_path / "wide", seed=0)


@pytest.fixture
def serve_cmd(base: Path, vl_folder: Path, tmp_path: Path) -> Iterator[str]:
    """Starts a proxy with a server behind it: a vLLM of its own, or one of three stand-ins."""
    folder = tmp_path / "crossed"
    if base != vl_folder:
        yield boundary.through_proxy(folder, "", f"{_ONE_THREAD} {VLLM}")
        return
    with ExitStack() as stack:
        servers = [stack.enter_context(VisionServer(base, free_port())) for _ in range(3)]
        ports = ",".join(str(one.serving.port) for one in servers)
        yield boundary.through_proxy(folder, ports, "{options}")


@pytest.fixture
def recipe(matching_recipe: dict[str, Any], base: Path, shapes_file: Path) -> dict[str, Any]:
    """Five rollouts a step over three servers of the run's own: two, two and one."""
    settings: dict[str, Any] = {
        "model__path": str(base),
        "data__prompt": QUESTION,
        "data__val_jsonl": None,
        "training__per_device_train_batch_size": 1,
        "training__gradient_accumulation_steps": _ROLLOUTS,
        "training__max_steps": _STEPS,
        "training__eval_steps": _STEPS,
        f"{_SECTION}__rollout_backend": "vllm",
        f"{_SECTION}__vllm": {"mode": "server", "server": {"launch": {"replicas": 3}}},
    }
    return changed(matching_recipe, **settings)


@pytest.mark.requirement("RM-10")
def test_of_three_servers_and_one_learner_only_requests_outputs_and_weights_cross(
    db: Database, serve_cmd: str, recipe: dict[str, Any], tmp_path: Path
) -> None:
    """By route and by content; the learner alone reads the data, and what claims to be drawn by
    the weights of a step is asked for when all three have them.
    """
    db.settings = db.settings.model_copy(update={"serve_cmd": serve_cmd})
    number = enqueue(db, "rollout_matching_sft", recipe, actor="test")

    drain(db.settings)

    found, run = jobs.get_job(db, number), RunDir(db.settings.runs_dir / str(number))
    assert found.state is State.SUCCEEDED, f"{found.error}\n{run.attempt(1).log.read_text()}"
    servers = boundary.read(tmp_path / "crossed")
    assert len(servers) == 3
    [weights] = (run.checkpoints / "checkpoint-0").glob("model.safetensors")
    for server in servers:
        routes = {one.path for one in server.exchanges}
        assert routes <= boundary.LOOKED_AT | boundary.ASKED | boundary.WEIGHTS
        boundary.require_weights_alone(server, load_file(weights))
        _require_requests_alone(server, Path(recipe["data"]["train_jsonl"]))
    order = _in_order(servers, run)
    for step in range(_STEPS):
        _require_rollouts(order, run, step)


def _require_requests_alone(server: boundary.Crossed, data: Path) -> None:
    """A question, pictures and how to decode: no row, no path, no ground truth."""
    for one in server.on("/v1/chat/completions"):
        assert one.body.keys() <= _BODY
        for turn in one.body["messages"]:
            assert turn.keys() == {"role", "content"}
            texts = [part["text"] for part in turn["content"] if part["type"] == "text"]
            assert texts == [QUESTION]
    known = {gt.desc for record in read_records(data) for gt in record.objects}
    told = " ".join((*server.command, *server.environment.values()))
    for secret in (str(data.parent), *known):
        assert secret not in told
        assert not any(secret in one.sent for one in server.exchanges), secret


def _in_order(servers: list[boundary.Crossed], run: RunDir) -> list[boundary.Crossed]:
    """As the run counts them."""
    drawn = next(one["args"] for one in read_trace(run.trace) if one.get("name") == "rollouts")
    ports = [
        int(url.removesuffix("/v1").rpartition(":")[2]) for url in drawn["decoding"]["servers"]
    ]
    return sorted(servers, key=lambda one: ports.index(one.port))


def _require_rollouts(servers: list[boundary.Crossed], run: RunDir, step: int) -> None:
    """Each record of the step once, in contiguous parts, after the weights were everywhere."""
    base = seed_base(11, step)
    parts = [server.rollouts(range(base, base + _ROLLOUTS)) for server in servers]
    assert [sorted(one.body["seed"] - base for one in part) for part in parts] == [
        [0, 1],
        [2, 3],
        [4],
    ]
    asked = sorted((one for part in parts for one in part), key=lambda one: one.body["seed"])
    rows = run.rollouts / f"train-{step + 1:06d}.jsonl"
    for one, row in zip(asked, map(json.loads, rows.read_text().splitlines()), strict=True):
        [turn] = one.body["messages"]
        [shown] = [part["image_url"]["url"] for part in turn["content"] if "image_url" in part]
        assert shown == DataURLs((Path(row["image"]),))[0]
        [choice] = json.loads(one.told)["choices"]
        assert choice["token_ids"][: len(row["ids"])] == row["ids"]
    first = min(one.began for one in asked)
    for server in servers:
        newest = [one for one in server.on("/finish_weight_update") if one.began < first][-1]
        assert newest.body["weight_version"].startswith(f"{step}-")
        assert newest.ended < first
