"""Supervised warm-up: teach the training rows until held-out accuracy reaches a target.

Learning is abrupt, so it stops by accuracy on the `select` rows and not at a step count. Sees
training rows only. What it produced is kept in the job cache under the hash of its whole recipe.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from engine import checkpoint
from engine.contract.errors import NightlaneError
from engine.contract.kinds.rl_run import RLRunConfig, WarmupConfig
from engine.data import Question
from engine.hooks import check_abort
from engine.models.policy import Policy
from engine.rl.losses import masked_mean
from engine.rl.scoring import Batch, score
from engine.rollout import Rollout

_RECIPE_VERSION = 1
"""Raised when this file changes what it produces, so that old cache entries no longer match."""


_RAMP_STEPS = 20
"""Steps over which the learning rate rises; Adam's first steps are its blindest."""


class WarmupError(NightlaneError):
    """The target accuracy was not reached."""


@dataclass(frozen=True)
class WarmupReport:
    """`score` is the accuracy on `select` when it stopped."""

    steps: int
    score: float
    cached: bool


_RECIPE = (
    "base",
    "tuning",
    "lora_rank",
    "lora_alpha",
    "adapter_init",
    "seed",
    "warmup",
    "verifier",
    "success_threshold",
    "max_new_tokens",
    "heldout_temp",
)
"""Settings that the warmed-up weights depend on, through training or through when it stops."""


def recipe_hash(config: RLRunConfig, split_hash: str) -> str:
    """Whatever the warmed-up weights depend on, as a name."""
    recipe = [_RECIPE_VERSION, split_hash, config.model_dump(include=set(_RECIPE))]
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:24]


def warm_up_cached(
    folder: Path,
    policy: Policy,
    learn: Callable[[], WarmupReport],
    warn: Callable[[str, str], None],
) -> WarmupReport:
    """Load the weights from `folder`, or `learn` them and keep them there.

    A damaged entry is said through `warn(code, text)`, learnt again and replaced.
    """
    if folder.exists():
        kept = checkpoint.verified(folder, warn)
        if kept is not None:
            policy.load(folder, version=0)
            return WarmupReport(kept.state["steps"], kept.state["score"], cached=True)
        shutil.rmtree(folder)
    report = learn()
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    temporary.mkdir(parents=True)
    policy.save(temporary)
    checkpoint.seal(temporary, {"steps": report.steps, "score": report.score})
    try:
        temporary.rename(folder)
    except OSError:
        # Another lane learnt the same recipe meanwhile; its entry is as good.
        shutil.rmtree(temporary)
    return report


def warm_up(
    policy: Policy,
    train: Sequence[Question],
    config: WarmupConfig,
    *,
    seed: int,
    evaluate: Callable[[], float],
    on_step: Callable[[int, float], None],
    on_score: Callable[[int, float], None],
) -> WarmupReport:
    """Raises WarmupError when `max_steps` did not suffice, Aborted between two steps."""
    optimizer = torch.optim.AdamW(
        policy.trainable().values(), lr=config.lr, betas=(0.9, 0.95), weight_decay=0.0
    )
    ramp = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / _RAMP_STEPS, 1.0, _RAMP_STEPS)
    draw = random.Random(f"{seed}:warmup")
    answered = [_answered(policy, question) for question in train]
    best = 0.0
    for step in range(1, config.max_steps + 1):
        check_abort()
        rows = draw.sample(answered, min(config.batch_size, len(answered)))
        on_step(step, _sft_step(policy, rows, optimizer))
        ramp.step()
        if step % config.eval_every == 0:
            accuracy = evaluate()
            on_score(step, accuracy)
            best = max(best, accuracy)
            if accuracy >= config.target_heldout:
                return WarmupReport(step, accuracy, cached=False)
    raise WarmupError(
        f"warm-up: {config.max_steps} steps reached {best:.2f} on held-out rows, not "
        f"warmup.target_heldout={config.target_heldout}; raise warmup.max_steps or lower the target"
    )


def _answered(policy: Policy, question: Question) -> Rollout:
    """The right answer and the end token, in the form of a rollout."""
    prompt_ids = policy.encode(question.prompt)
    answer_ids = policy.encode_answer(question.answer)
    return Rollout(question.id, 0, prompt_ids, answer_ids, (), question.answer, False, 0)


def _sft_step(policy: Policy, rows: Sequence[Rollout], optimizer: torch.optim.Optimizer) -> float:
    """Cross-entropy on the answer's tokens; the loss before the update."""
    batch = Batch.of(rows, policy.device)
    scores = score(policy.model, batch, temp=1.0)
    loss = -masked_mean(scores.logprobs_BT, batch.mask_BT).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(policy.trainable().values(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()
