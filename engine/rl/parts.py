"""The real parts behind the loop's seams, built from a config.

Knows no run directory: whoever wires them decides where the policy's weights come from.
"""

from __future__ import annotations

from typing import Literal

from engine.contract.kinds.rl_run import RLRunConfig
from engine.models import adapters
from engine.models.policy import Policy, Snapshot, build
from engine.reward import RewardAdapter, load_verifier
from engine.rl.gate import Gate
from engine.rl.trainer import Trainer
from engine.rollout.hf import HFSampler

Purpose = Literal["train", "heldout"]


def build_policy(config: RLRunConfig) -> Policy:
    """The base, with an adapter when only that is tuned. Raises RLLoopError."""
    policy = build(config.base, config.seed)
    if config.tuning == "full":
        return policy
    if config.adapter_init is not None:
        policy.model = adapters.attach_folder(policy.model, config.adapter_init)
    else:
        policy.model = adapters.attach_zero(
            policy.model,
            base=config.base,
            rank=config.lora_rank,
            alpha=config.lora_alpha,
            seed=config.seed,
        )
    return policy


def build_sampler(config: RLRunConfig, policy: Policy, purpose: Purpose) -> HFSampler:
    """Training draws anew at each version; the held-out gate always draws alike."""
    training = purpose == "train"
    return HFSampler(
        policy=policy,
        seed=config.seed,
        purpose=purpose,
        temp=config.temp if training else config.heldout_temp,
        max_new_tokens=config.max_new_tokens,
        batch_size=config.rollout_batch,
        pin_version=not training,
    )


def build_reward(config: RLRunConfig) -> RewardAdapter:
    """The config's verifier with its threshold."""
    return RewardAdapter(load_verifier(config.verifier), config.success_threshold)


def build_gate(config: RLRunConfig, policy: Policy, reward: RewardAdapter) -> Gate:
    """The held-out evaluation of whatever weights the policy has when asked."""
    return Gate(build_sampler(config, policy, "heldout"), reward, config.heldout_temp)


def build_trainer(config: RLRunConfig, policy: Policy) -> Trainer:
    """Call it while the policy stands at step 0: this is where the KL reference is taken."""
    return Trainer(
        policy,
        Snapshot(policy),
        lr=config.lr,
        kl_coef=config.kl_coef,
        grad_clip=config.grad_clip,
        temp=config.temp,
        micro_batch=config.micro_batch,
    )
