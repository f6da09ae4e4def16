"""Two learners under `torchrun` (gloo): equal to one, and never waiting for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

from engine.contract.events import Event
from engine.contract.run_dir import RunDir
from engine.run.ranks import Ranks, share
from engine.stage2.stage2_ab import run as stage2_run
from tests.deadline import eventually
from tests.engine.conftest import add_attempt, opened
from tests.engine.stage2.conftest import changed, folder_of

Recipe = dict[str, Any]
Events = Callable[..., list[Event]]
_RANK = Path(__file__).with_name("rank.py")


def start_two_ranks(*runs: RunDir, log: Path) -> subprocess.Popen[bytes]:
    """Two learners of the same run directories, bound to the loopback alone."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    environment = os.environ | {
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path.cwd()),
        "HF_HUB_OFFLINE": "1",
    }
    with log.open("wb") as stream:
        return subprocess.Popen(
            [*command, "--nproc-per-node=2", str(_RANK), *(str(run.root) for run in runs)],
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=environment,
        )


@pytest.fixture
def two_passes(ab_recipe: Recipe) -> Recipe:
    """Four samples an update, by plain gradient descent, which shows gradients as they are."""
    return changed(
        ab_recipe,
        training__optim="sgd",
        training__learning_rate=0.1,
        training__max_steps=2,
        training__max_grad_norm=0.0,
        data__val_jsonl=None,
    )


def final_weights(run: RunDir, step: int = 2) -> dict[str, torch.Tensor]:
    return load_file(folder_of(run, step) / "model.safetensors")


def test_shares_add_up_and_the_first_ranks_take_what_is_left() -> None:
    """R // W each, and one more on the first R % W."""
    for total in range(9):
        for size in range(1, 5):
            shares = [share(total, rank, size) for rank in range(size)]
            assert sum(shares) == total
            assert shares == sorted(shares, reverse=True)
            assert shares[0] - shares[-1] <= 1


def test_one_process_is_a_run_of_one_rank() -> None:
    """Nothing is sent, and the mean is over its own samples."""
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([2.0, 4.0])

    assert Ranks().average_gradients([parameter], 4) == 4
    assert parameter.grad.tolist() == [0.5, 1.0]
    assert Ranks().gather([1]) == [1]


@pytest.mark.requirement("AB-21")
def test_two_ranks_learn_what_one_learns_and_a_rank_with_nothing_does_not_block(
    two_passes: Recipe, tmp_path: Path, events: Events
) -> None:
    """Gradients equal one rank's on the same global batch; shares sum to rollouts_per_step."""
    alone = add_attempt(tmp_path, two_passes, name="alone", kind="stage2_ab")
    with opened(alone) as attempt:
        stage2_run(attempt)
    halved = changed(two_passes, training__per_device_train_batch_size=1)
    together = add_attempt(tmp_path, halved, name="together", kind="stage2_ab")
    only_one = changed(
        halved,
        stage2_ab__channel_b__rollouts_per_step=1,
        stage2_ab__schedule__b_ratio=1.0,
        training__max_steps=1,
    )
    lonely = add_attempt(tmp_path, only_one, name="lonely", kind="stage2_ab")
    log = tmp_path / "log"

    code = start_two_ranks(together, lonely, log=log).wait(timeout=240)

    assert code == 0, log.read_text()
    one, two = final_weights(alone), final_weights(together)
    for name, weight in one.items():
        assert float((weight - two[name]).abs().max()) <= 1e-5, name
    rollouts = [e["values"] for e in events(together, "metric") if e["step"] == 2]
    assert rollouts[0]["stage2/raw_rollouts"] == 4.0
    assert rollouts[0]["train/samples"] == 4.0
    (step,) = [e["values"] for e in events(lonely, "metric") if "train/loss" in e["values"]]
    assert step["stage2/raw_rollouts"] == step["train/samples"] == 1.0


@pytest.mark.requirement("AB-21")
def test_a_rank_that_is_killed_ends_the_run_with_a_message(
    two_passes: Recipe, tmp_path: Path, events: Events
) -> None:
    """The other one does not wait for ever, and the run can be resumed."""
    endless = changed(
        two_passes,
        training__per_device_train_batch_size=1,
        training__max_steps=10_000,
        training__ddp_timeout=60,
    )
    run = add_attempt(tmp_path, endless, kind="stage2_ab")
    log = tmp_path / "log"
    agent = start_two_ranks(run, log=log)
    try:
        eventually(lambda: events(run, "metric"), "no step was made", within_s=200)
        ranks = [
            child
            for child in psutil.Process(agent.pid).children(recursive=True)
            if child.environ().get("RANK") == "1"
        ]
        ranks[0].send_signal(signal.SIGKILL)
        began = time.monotonic()
        code = agent.wait(timeout=90)
    finally:
        agent.terminate()  # it ends its ranks
        agent.wait(timeout=60)

    assert code != 0
    assert time.monotonic() - began < 90
    said = log.read_text()
    assert "lost the others" in said or "SIGKILL" in said or "Signal 9" in said
