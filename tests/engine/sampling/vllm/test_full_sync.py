"""Merged weights that travel in memory: exact, proven at each sync, and the servers that lie.

On a stand-in and, by `make test-vllm`, on the real vLLM.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from engine.contract.serving import Serving
from engine.models import lora
from engine.models.policy import Policy, build
from engine.sampling.vllm.client import ServerApi
from engine.sampling.vllm.endpoint import Request, ServerError, ServerLostError
from engine.sampling.vllm.process import ServerProcess
from engine.sampling.vllm.sync.full import FullSync, VLLMTransfer
from engine.sampling.vllm.sync.needs import launch_needs
from engine.sampling.vllm.sync.proof import Proof, SyncError
from engine.sampling.vllm.sync.routes import WeightRoutes
from engine.sampling.vllm.sync.shared import SharedMemory
from tests.deadline import eventually
from tests.engine.sampling.vllm.conftest import REAL, SERVERS, free_port
from tests.engine.sampling.vllm.weight_server import Lie, WeightServer

EXACT = 1e-4
CONTEXTS = [(5, 6, 7, 8) * 6, (9, 3, 40), (100, 7) * 10]


@pytest.fixture(scope="module")
def base(chat_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3 whose head is its embedding, with heads of 32 numbers; no vocabulary to be padded."""
    folder = tmp_path_factory.mktemp("qwen3")
    config = Qwen3Config(
        vocab_size=640,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=160,
        initializer_range=0.1,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        Qwen3ForCausalLM(config).save_pretrained(folder)
    for file in chat_base.iterdir():
        if "tokenizer" in file.name or file.name == "generation_config.json":
            (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.fixture(scope="module")
def stand_in(base: Path) -> Iterator[WeightServer]:
    with WeightServer(base, free_port()) as server:
        yield server


@pytest.fixture(scope="module")
def vllm(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """The real one, with LoRA switched on as a run has it that may fall back."""
    assert REAL is not None
    serving = Serving(url=f"http://127.0.0.1:{free_port()}/v1", timeout_s=300)
    needs = launch_needs("adapter", "cpu", may_fall_back=True)
    command = [
        *(REAL, "-m", "vllm.entrypoints.openai.api_server", "--model", str(base)),
        *("--host", "127.0.0.1", "--port", str(serving.port), "--dtype", "float32"),
        *("--max-model-len", "120", "--enforce-eager", "--generation-config", "vllm"),
        *("--logprobs-mode", "processed_logprobs", "--enable-lora", "--max-lora-rank", "8"),
        *needs.options,
    ]
    log = tmp_path_factory.mktemp("log") / "serving.log"
    env = {**needs.environment, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    process = ServerProcess.start(command, stop_cmd=None, log=log, env=env)
    try:
        eventually(ServerApi(serving).healthy, f"{log} comes up", within_s=300)
        yield serving
    finally:
        process.stop()


@pytest.fixture(params=SERVERS)
def serving(request: pytest.FixtureRequest) -> Serving:
    """The one or the other; a lie of an earlier test is over."""
    if request.param == "vllm":
        found: Serving = request.getfixturevalue("vllm")
        return found
    server: WeightServer = request.getfixturevalue("stand_in")
    server.lie = None
    return server.serving


class Learner(NamedTuple):
    """A policy and its sync."""

    policy: Policy
    sync: FullSync
    server: ServerApi

    def gap(self) -> float:
        """Largest difference at the likeliest tokens, twice over prompts in the prefix cache."""
        largest = 0.0
        for ids in (*CONTEXTS, *CONTEXTS):
            request = Request(ids, k=1, seed=0, temp=1.0, max_new_tokens=1, end_ids=(), top=20)
            [[drawn]] = self.server.complete(self.sync.serves, [request], at_once=1)
            with torch.inference_mode():
                logits = self.policy.model(input_ids=torch.tensor([ids])).logits[0, -1]
            ours = torch.log_softmax(logits, -1)
            largest = max(largest, *(abs(v - ours[t].item()) for t, v in drawn.top[0].items()))
        return largest


def learner(base: Path, serving: Serving, tuning: str, most: int = 2**20) -> Learner:
    policy = build(str(base), 0)
    if tuning != "full":
        policy.model = lora.attach_zero(
            policy.model, base=str(base), rank=4, alpha=8, seed=1, dora=tuning == "dora"
        )
    server = ServerApi(serving)
    routes = WeightRoutes(serving)
    proof = Proof([server], policy, CONTEXTS, tolerance=0.001)
    sync = FullSync(proof, VLLMTransfer([routes], SharedMemory(most)), dtype=torch.float32)
    return Learner(policy, sync, server)


def move(policy: Policy, size: float = 0.03) -> None:
    policy.version += 1
    generator = torch.Generator().manual_seed(policy.version)
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))


@pytest.mark.timeout(600)
@pytest.mark.requirement("RM-06")
@pytest.mark.parametrize("tuning", ["lora", "dora", "full"])
def test_merged_weights_answer_after_each_of_several_syncs(
    base: Path, serving: Serving, tuning: str
) -> None:
    """In bucketfuls far smaller than the model, with the prefix cache on; and the trainer's own
    weights are what they were, to the bit."""
    own = learner(base, serving, tuning, most=64_000)

    for _ in range(3):
        move(own.policy)
        before = {name: t.clone() for name, t in own.policy.model.state_dict().items()}
        synced = own.sync.bring()

        assert synced is not None
        assert (synced.mode, synced.tries) == ("full", 1)
        assert synced.bytes == 4 * (640 * 64 + own_layers())
        assert own.gap() < EXACT
        assert own.sync.bring() is None
        own.sync.still_ours()
        after = own.policy.model.state_dict()
        assert all(torch.equal(t, after[name]) for name, t in before.items())
    own.sync.close()


def own_layers() -> int:
    """Numbers of two layers and the last norm, by hand."""
    attention = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 2 * 32
    return 2 * (attention + 3 * 64 * 128 + 2 * 64) + 64


@pytest.mark.timeout(600)
@pytest.mark.requirement("RM-06")
def test_an_update_that_was_left_open_is_given_up(base: Path, serving: Serving) -> None:
    """A trainer killed in the middle of a sync leaves a server that the next one can use."""
    own = learner(base, serving, "full")
    WeightRoutes(serving).start()
    move(own.policy)

    own.sync.bring()

    assert own.gap() < EXACT
    own.sync.close()


@pytest.mark.timeout(600)
def test_weights_that_somebody_else_sent_are_seen(base: Path, serving: Serving) -> None:
    """Two runs must not share a server."""
    own, other = learner(base, serving, "lora"), learner(base, serving, "full")
    move(own.policy)
    own.sync.bring()
    move(other.policy)
    other.sync.bring()

    with pytest.raises(ServerError, match="give each run a server of its own"):
        own.sync.still_ours()


@pytest.mark.requirement("RM-06")
@pytest.mark.parametrize(
    ("lie", "size", "said"),
    [
        ("nothing loaded", 0.03, "nats a token away from the trainer's model"),
        ("nothing loaded", 1e-6, "holds others in 18 of 18 parameters"),
        ("half loaded", 0.03, "holds others in 9 of 18 parameters"),
    ],
)
def test_a_200_without_a_load_ends_the_step_by_name(
    base: Path, stand_in: WeightServer, lie: Lie, size: float, said: str
) -> None:
    """Each verb answers 200 and the version is set; sent once more, then the step ends."""
    stand_in.lie = None
    own = learner(base, stand_in.serving, "full")
    if "parameters" in said:
        own.sync.bring()
    stand_in.lie = lie
    own.policy.version = 100  # of weights that no other test sent
    move(own.policy, size)
    stand_in.calls.clear()

    with pytest.raises(SyncError, match=said) as caught:
        own.sync.bring()

    assert not caught.value.resumable
    assert stand_in.calls.count("start_weight_update") == 2
    stand_in.lie = None
    assert own.sync.bring() is not None
    assert own.gap() < EXACT


def test_what_failed_once_is_sent_again(base: Path, stand_in: WeightServer) -> None:
    """And counted."""
    own = learner(base, stand_in.serving, "full")
    move(own.policy)
    stand_in.lie = "loaded the second time"

    synced = own.sync.bring()

    assert synced is not None
    assert synced.tries == 2
    assert own.gap() < EXACT


def test_each_sync_empties_the_caches_before_the_proof(base: Path, stand_in: WeightServer) -> None:
    """Keys and values of the old weights would answer for the new ones."""
    stand_in.lie = None
    own = learner(base, stand_in.serving, "lora")
    move(own.policy)
    own.sync.bring()
    move(own.policy)
    stand_in.calls.clear()

    own.sync.bring()

    calls = [one for one in stand_in.calls if one != "update_weights"]
    assert calls[: calls.index("v1/completions")] == [
        *("start_weight_update", "finish_weight_update"),
        *("reset_prefix_cache", "reset_encoder_cache", "weight_info", "weight_checker"),
    ]


def test_a_server_that_is_gone_is_no_sync_that_did_not_arrive(base: Path) -> None:
    """Another server can be asked again; stale weights cannot be trained on."""
    with WeightServer(base, free_port()) as server:
        own = learner(base, server.serving, "full")
        own.sync.bring()
    move(own.policy)

    with pytest.raises(ServerLostError, match="the server is gone"):
        own.sync.bring()


def test_the_memory_has_no_name_and_is_gone_with_the_sync(
    base: Path, stand_in: WeightServer
) -> None:
    """So nothing is left behind, however the trainer ends."""
    stand_in.lie = None
    own = learner(base, stand_in.serving, "full")
    own.sync.bring()
    held = _memories()

    own.sync.close()

    assert all("(deleted)" in link for link in held)
    assert len(_memories()) == len(held) - 1


def _memories() -> list[str]:
    links = [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    return [link for link in links if "nightlane-weights" in link]
