"""Which mode a run uses, when it falls back, and what its servers are started with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.contract.served import RunSyncConfig, RunVLLMConfig
from engine.contract.serving import Serving
from engine.models import lora
from engine.models.policy import Policy, build
from engine.sampling.vllm.client import ServerApi
from engine.sampling.vllm.endpoint import ServerError, ServerLostError
from engine.sampling.vllm.lane import ServingLane
from engine.sampling.vllm.launch import Needs
from engine.sampling.vllm.sync.adapter import MEMORY, AdapterSync
from engine.sampling.vllm.sync.chosen import ChosenSync
from engine.sampling.vllm.sync.full import FullSync, VLLMTransfer
from engine.sampling.vllm.sync.needs import launch_needs
from engine.sampling.vllm.sync.proof import Proof, SyncError
from engine.sampling.vllm.sync.routes import WeightRoutes
from engine.sampling.vllm.sync.shared import SharedMemory
from tests.engine.sampling.vllm.conftest import free_port
from tests.engine.sampling.vllm.weight_server import WeightServer


@pytest.fixture(scope="module")
def server(chat_base: Path) -> Iterator[WeightServer]:
    with WeightServer(chat_base, free_port()) as server:
        yield server


@pytest.fixture
def policy(chat_base: Path) -> Policy:
    policy = build(str(chat_base), 0)
    policy.model = lora.attach_zero(policy.model, base=str(chat_base), rank=2, alpha=4, seed=1)
    return policy


class Run:
    """A sync that begins with adapters; the server takes none."""

    def __init__(
        self, server: WeightServer, policy: Policy, folder: Path, *, falls_back: bool = True
    ) -> None:
        self.policy = policy
        self.warned: list[str] = []
        self.loads = 0
        self._server = server
        self._folder = folder
        self._falls_back = falls_back
        self.sync = self.resumed({})

    def resumed(self, state: dict[str, Any]) -> ChosenSync:
        """As an attempt begins it, from a checkpoint's word."""
        serving = self._server.serving
        proof = Proof([ServerApi(serving)], self.policy, [(5, 6, 7)], tolerance=0.001)
        routes = WeightRoutes(serving)
        full = FullSync(proof, VLLMTransfer([routes], SharedMemory()))
        return ChosenSync(
            proof,
            adapter=AdapterSync(proof, name="policy", folder=self._folder),
            full=full if self._falls_back else None,
            warn=lambda code, text: self.warned.append(f"{code}: {text}"),
            state=state,
        )

    def refuse(self, folder: Path) -> None:
        assert (folder / "adapter_config.json").is_file()
        self.loads += 1
        raise ServerError("vLLM does not yet support DoRA; look at the serving log")

    def step(self) -> None:
        for parameter in self.policy.trainable().values():
            parameter.data.add_(0.01)


@pytest.fixture
def run(server: WeightServer, policy: Policy, tmp_path: Path) -> Run:
    return Run(server, policy, tmp_path)


@pytest.mark.requirement("RM-06")
def test_a_fallback_is_warned_of_once_and_lasts_for_the_run(run: Run) -> None:
    """Also after a resume: the checkpoint says so, and no adapter is tried again."""
    for _ in range(3):
        run.step()
        synced = run.sync.bring(run.refuse)
        assert synced is not None
        assert synced.mode == "full"
    again = run.resumed(run.sync.state)
    run.step()
    again.bring(run.refuse)
    again.still_ours()

    said = "vLLM does not yet support DoRA"
    assert run.warned == [f"SYNC_FALLBACK: adapter sync failed, full sync from here on: {said}"]
    assert run.loads == 2  # one try and its repetition, of the first sync
    assert run.sync.state == again.state == {"mode": "full", "fell_back": said}
    assert again.serves == run.sync.serves != "policy"


@pytest.mark.requirement("RM-06")
def test_without_a_fallback_a_failed_adapter_sync_ends_the_run_with_the_remedy(
    server: WeightServer, policy: Policy, tmp_path: Path
) -> None:
    """It is not tried again by itself."""
    run = Run(server, policy, tmp_path, falls_back=False)

    with pytest.raises(SyncError, match=r"set vllm\.sync\.mode: full, or vllm"):
        run.sync.bring(run.refuse)

    assert (run.warned, run.sync.state["mode"]) == ([], "adapter")


def test_a_server_that_is_gone_is_no_reason_to_fall_back(
    chat_base: Path, policy: Policy, tmp_path: Path
) -> None:
    """A run would give its adapters up for good because of a restart."""
    with WeightServer(chat_base, free_port()) as server:
        run = Run(server, policy, tmp_path)

    with pytest.raises(ServerLostError, match="DoRA"):
        run.sync.bring(run.refuse)

    assert run.sync.state == {"mode": "adapter", "fell_back": None}


def test_a_server_is_started_with_what_its_mode_needs() -> None:
    """Options and environment; adapters that may be given up need both."""
    lone, both = launch_needs("adapter", "cpu"), launch_needs("adapter", "cpu", may_fall_back=True)
    full, near = launch_needs("full", "cpu"), launch_needs("full", "cuda-shared")

    assert lone.options == []
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" in lone.environment
    assert both.options == full.options
    assert '{"backend": "nightlane"}' in full.options
    folder = Path(full.environment["PYTHONPATH"].partition(":")[0])
    module = full.options[-1].partition(".")[0]
    assert (folder / f"{module}.py").is_file()
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" not in full.environment
    assert near.environment["VLLM_ALLOW_INSECURE_SERIALIZATION"] == "1"
    for found in (lone, both, full, near):
        assert found.environment["VLLM_SERVER_DEV_MODE"] == "1"


def test_adapters_lie_in_memory_where_nobody_else_looks(
    policy: Policy, tmp_path: Path, chat_base: Path
) -> None:
    """Of a server that the run starts by itself; what a killed run left is taken away."""
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    left = MEMORY / f"nightlane-{os.getuid()}-{killed.pid}-0"
    left.mkdir()

    folder = lane_of(policy, chat_base, tmp_path, Serving())._folder

    assert folder.is_relative_to(MEMORY)
    assert not left.exists()
    container = Serving(serve_cmd="docker run {base}")
    assert lane_of(policy, chat_base, tmp_path, container)._folder == tmp_path / "serving"


@pytest.mark.requirement("RM-06")
def test_a_resumed_run_that_fell_back_starts_its_server_without_adapters(
    policy: Policy, tmp_path: Path, chat_base: Path
) -> None:
    """Which would not come up with one that it does not take."""
    fell_back = {"mode": "full", "fell_back": "vLLM does not yet support DoRA"}
    lane = lane_of(policy, chat_base, tmp_path, Serving(), fell_back)

    assert lane._first_adapter() is None
    assert lane.facts["sync"] == fell_back


def lane_of(
    policy: Policy,
    base: Path,
    place: Path,
    serving: Serving,
    state: dict[str, Any] | None = None,
) -> ServingLane:
    """Not up."""
    return ServingLane(
        serving,
        Needs(str(base), "float32", 64, 8, 2, 1, None),
        policy,
        contexts=[(5, 6)],
        folder=place / "serving",
        log=place / "serving.log",
        tolerance=0.01,
        say=lambda *_: None,
        vllm=RunVLLMConfig(sync=RunSyncConfig(fallback_to_full=True)),
        before={"sync": state},
    )
