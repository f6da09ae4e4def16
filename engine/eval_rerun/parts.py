"""The model, the prompts, the sampler and the judge of an `eval_rerun`, built from its config."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from peft import get_peft_model_state_dict

from engine.contract.errors import RLLoopError
from engine.contract.kinds.eval_rerun import EvalRerunConfig
from engine.contract.rl.format import FormatConfig
from engine.data.overlong import SHORTEN, misfit_problem, misfits
from engine.data.rows import Question
from engine.evaluate.gate import case_of
from engine.models import lora
from engine.models.chat import Clock, local_now
from engine.models.policy import Policy, build, require_finite, take_template
from engine.rewards.adapter import RewardAdapter, load_rewards, scheduled_reward
from engine.run.stop import check_abort
from engine.sampling.base import OwnWeights, Rollout, Sampler
from engine.sampling.hf import HFSampler
from engine.sampling.prompts import PromptBuilder
from engine.sampling.rollouts import Rollouts

_BATCH = 32
"""Completions judged between two looks at the abort."""


def open_policy(config: EvalRerunConfig, clock: Clock) -> Policy:
    """The base with its adapter. Raises RLLoopError."""
    policy = build(config.base, config.base_seed)
    take_template(policy, config.prompting, clock)
    if config.adapter_init is not None:
        policy.model = lora.attach_folder(policy.model, config.adapter_init)
        state = get_peft_model_state_dict(policy.model, save_embedding_layers=False)
        require_finite("adapter_init", config.adapter_init, state)
    policy.model.eval()
    return policy


def build_prompts(config: EvalRerunConfig, policy: Policy) -> PromptBuilder:
    """From a question to the ids in front of its completion."""
    clock = policy.chat.clock if policy.chat else local_now
    known = policy.known_tokens
    return PromptBuilder(policy.tokenizer, config.prompting, known=known, clock=clock)


def rows_that_fit(
    config: EvalRerunConfig,
    policy: Policy,
    prompts: PromptBuilder,
    rows: Sequence[Question],
    warn: Callable[[str, str], None],
) -> Sequence[Question]:
    """Those whose prompts leave room for an answer. Raises RLLoopError where others are refused."""
    window = policy.window
    longest = None if window is None else window - config.max_new_tokens
    found = misfits(rows, prompts.lengths, longest)
    if not found:
        return rows
    problem = misfit_problem(found, len(rows), config.max_new_tokens, window)
    left_out = {misfit.id for misfit in found}
    rest = [row for row in rows if row.id not in left_out]
    if config.prompting.too_long == "refuse" or not rest:
        raise RLLoopError.of("data", None, problem, SHORTEN)
    warn("PROMPTS_DROPPED", f"left out: {problem}")
    return rest


def build_sampler(config: EvalRerunConfig, policy: Policy, prompts: PromptBuilder) -> Sampler:
    """The sampler of every run, with random numbers named by seed, row and sample."""
    own = HFSampler(
        policy=policy,
        seed=config.seed,
        purpose="eval",
        temp=config.temp,
        max_new_tokens=config.max_new_tokens,
        batch_size=config.rollout_batch,
        sampling=config.sampling,
        encode=prompts,
    )
    return Rollouts(own, OwnWeights(), prompts.begins)


def build_reward(config: EvalRerunConfig) -> RewardAdapter:
    """The judge."""
    verifier = load_rewards(
        [(config.verifier, 1.0)],
        config.success_threshold,
        timeout_s=config.reward_timeout_s,
        max_steps=1,
    )
    return scheduled_reward(verifier, config.success_threshold, FormatConfig(), 1)


def judged(
    reward: RewardAdapter, question: Question, rollouts: Sequence[Rollout]
) -> list[dict[str, Any]]:
    """One row's completions as lines of a rollout file. Raises Aborted between two batches."""
    lines: list[dict[str, Any]] = []
    size = max(1, len(rollouts)) if reward.batched else _BATCH
    for start in range(0, len(rollouts), size):
        check_abort()
        some = rollouts[start : start + size]
        cases = [case_of(question, rollout, 0) for rollout in some]
        verdicts = reward.judge_all(cases, [rollout.truncated for rollout in some])
        lines += [
            {
                "id": question.id,
                "sample": rollout.sample,
                "version": rollout.version,
                "prompt": question.prompt,
                "text": rollout.text,
                "answer": verdict.answer,
                "reward": verdict.reward,
                "reason": verdict.reason.value,
                "success": reward.success(verdict) if verdict.counted else None,
                "truncated": rollout.truncated,
            }
            for rollout, verdict in zip(some, verdicts, strict=True)
        ]
    return lines
