"""bfloat16 products around fp32 weights, on real tiny models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.rl.optim import OptimConfig
from engine.data.rows import Question
from engine.models.policy import Policy, Snapshot
from engine.rl.parts import build_policy, build_trainer
from engine.rl.scoring import Batch, score
from engine.rl.trainer import Trainer
from engine.sampling.base import Rollout
from engine.sampling.hf import HFSampler

GROUPS = [
    [Rollout("q", i, (1, 2, 3), ids, (), "", False, 0) for i, ids in enumerate([(4, 12), (5, 6)])]
]
ADVANTAGES = [[1.0, -1.0]]


def policy_of(base: Path, tuning: str) -> tuple[Policy, Trainer]:
    config = RLRunConfig(
        base=str(base), tuning=tuning, lora_rank=4, lr=1e-2, optim=OptimConfig(precision="bf16")
    )
    policy = build_policy(config)
    return policy, build_trainer(config, policy)


def dtypes(policy: Policy, *, trainable: bool) -> set[Any]:
    return {p.dtype for p in policy.model.parameters() if p.requires_grad == trainable}


@pytest.mark.parametrize("tuning", ["lora", "dora", "full"])
def test_what_trains_stays_fp32_with_its_gradients_and_moments(
    base_folder: Path, tuning: str
) -> None:
    """Only frozen weights are stored in bfloat16."""
    policy, trainer = policy_of(base_folder, tuning)

    metrics = trainer(GROUPS, ADVANTAGES, 1)

    assert dtypes(policy, trainable=True) == {torch.float32}
    assert dtypes(policy, trainable=False) == (set() if tuning == "full" else {torch.bfloat16})
    moments = {s["exp_avg"].dtype for s in trainer.optimizer.state.values()}
    assert moments == {torch.float32}
    assert metrics["train/kl"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_a_checkpoint_carries_the_fp32_weights_and_resumes_to_the_bit(
    base_folder: Path, tmp_path: Path, tuning: str
) -> None:
    """Two updates in one go equal one, a checkpoint, and another."""
    policy, trainer = policy_of(base_folder, tuning)
    trainer(GROUPS, ADVANTAGES, 1)
    trainer.save(tmp_path)
    trainer(GROUPS, ADVANTAGES, 2)

    resumed, other = policy_of(base_folder, tuning)
    other.load(tmp_path)
    other(GROUPS, ADVANTAGES, 2)

    for name, parameter in policy.trainable().items():
        assert torch.equal(resumed.trainable()[name], parameter)
    for file in tmp_path.rglob("*.safetensors"):
        assert {tensor.dtype for tensor in load_file(file).values()} == {torch.float32}


@pytest.mark.requirement("EX-01")
def test_sampler_and_trainer_compute_in_the_same_precision(base_folder: Path) -> None:
    """Log-probabilities are fp32 on both sides, of logits that are bfloat16 on both."""
    policy, trainer = policy_of(base_folder, "full")
    sampler = HFSampler(policy, 0, "train", 0.8, 6, 64)
    groups = sampler([Question("a", "1+2=", "")], 4)
    rollouts = [r for group in groups for r in group]
    with torch.no_grad(), policy.computing():
        scores = score(policy.model, Batch.of(rollouts, policy.device), 0.8)

    metrics = trainer(groups, [[1.0, -1.0, 0.5, -0.5]], 1)

    assert scores.logprobs_BT.dtype == torch.float32
    assert metrics["train/sampler_gap_mean"] < 0.02


def test_the_reference_is_not_mistaken_for_the_weights_of_the_last_pass(base_folder: Path) -> None:
    """Autocast keeps bfloat16 copies of weights in a block; weights are swapped between blocks."""
    policy, trainer = policy_of(base_folder, "full")
    reference = Snapshot(policy)
    batch = Batch.of(GROUPS[0], policy.device)

    def scores() -> torch.Tensor:
        with policy.computing():
            return score(policy.model, batch, 0.8).logprobs_BT.detach()

    before = scores()
    trainer(GROUPS, ADVANTAGES, 1)
    moved = scores()
    with torch.no_grad(), reference.in_place():
        frozen = scores()

    assert torch.equal(frozen, before)
    assert not torch.equal(moved, before)
