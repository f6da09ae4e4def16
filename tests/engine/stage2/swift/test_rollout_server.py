"""ms-swift's rollout server, the real one over vLLM on a CPU, answers our `/infer/` client.

Its weight group is NCCL's, which a CPU has none of: the server keeps the weights that it loaded.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from engine.contract.sources.records import Record, read_record
from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.models.qwen3_vl import VisionModel, load
from engine.sampling.vllm.infer import InferApi
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.rollout.hf import HFSampler
from engine.stage2.rollout.prompts import PromptReader
from engine.stage2.rollout.vllm import VLLMSampler
from tests.deadline import eventually
from tests.engine.sampling.vllm.conftest import free_port
from tests.engine.stage2.rollout.test_vllm import Straight, rollouts
from tests.engine.stage2.swift import qwen_ids
from tests.engine.stage2.swift.conftest import REAL, ROOT

pytestmark = [pytest.mark.swift, pytest.mark.timeout(1800)]


@dataclass(frozen=True)
class Started:
    """Where the server listens, as a lane of a served run knows it."""

    root: str
    base: Path

    @property
    def serving(self) -> Started:
        return self


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """vLLM on a CPU serves no heads of less than 32 numbers."""
    return qwen_ids.save(tmp_path_factory.mktemp("qwen128"), hidden=128)


@pytest.fixture(scope="module")
def server(
    base: Path, surroundings: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Started]:
    """One for the module, with its processes gone at the end."""
    port, log = free_port(), tmp_path_factory.mktemp("server") / "log"
    given = {
        "model": base,
        "model_type": "qwen3_vl",
        "torch_dtype": "float32",
        "vllm_enforce_eager": "true",
        "vllm_max_model_len": 512,
        "vllm_max_num_seqs": 8,
        "host": "127.0.0.1",
        "port": port,
    }
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    with log.open("w") as said:
        process = subprocess.Popen(
            [REAL or "", "-m", "tests.engine.stage2.swift.rollout_server", *words],
            cwd=ROOT,
            env=surroundings | {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"},
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        found = Started(f"http://127.0.0.1:{port}", base)
        api = InferApi(found.root, batch_size=2)
        eventually(lambda: process.poll() is not None or api.healthy(), "it never answered", 600)
        assert process.poll() is None, log.read_text()[-3000:]
        yield found
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """With time for its resource trackers: killed with the others they leave shared memory."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)


@pytest.fixture(scope="module")
def vlm(base: Path) -> VisionModel:
    found = load(str(base), dtype="float32", attn_implementation="sdpa")
    found.model.eval()
    return found


@pytest.fixture(scope="module")
def asked(scenes: list[dict[str, object]]) -> list[Record]:
    return [read_record(row, f"row {n}", Path("/")) for n, row in enumerate(scenes[:4], 1)]


def sampler(server: Started, vlm: VisionModel, config: RolloutMatchingConfig) -> VLLMSampler:
    reader = PromptReader(vlm, TokenPieces(vlm.tokenizer), "Locate every object.")
    return VLLMSampler(Straight(cast("Any", server), vlm, "infer"), reader, config, limit=1e-4)


@pytest.mark.requirement("RM-02", "AB-02")
def test_its_greedy_answers_are_those_of_the_model_itself(
    server: Started, vlm: VisionModel, asked: list[Record]
) -> None:
    """Pictures go out, ids come back; prompts are held against the run's own."""
    served = sampler(server, vlm, rollouts())
    prompts = [served.reader(record) for record in asked]

    assert InferApi(server.root, batch_size=2).world_size() == 1
    assert served(prompts, 7) == HFSampler(vlm, served.reader.pieces, rollouts())(prompts, 7)


@pytest.mark.requirement("RM-08")
def test_a_sampled_answer_follows_from_its_seed(
    server: Started, vlm: VisionModel, asked: list[Record]
) -> None:
    decoding = {"temperature": 0.9, "top_p": 1.0, "top_k": -1}
    served = sampler(server, vlm, rollouts(decoding=decoding))
    prompts = [served.reader(record) for record in asked[:2]]

    first = served(prompts, 7)

    assert served(prompts, 7) == first
    assert served(prompts, 8) != first
