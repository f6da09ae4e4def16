"""Supervised training before step 0: the form of an answer first, then the task itself.

Format pre-training stops when enough completions are well-formed, the warm-up when held-out
accuracy reaches its target: learning is abrupt, so neither stops at a step count. Both teach
training rows only. What came of them is kept in the job cache under the hash of the whole recipe.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from engine.contract.kinds.rl_run import RLRunConfig, WarmupConfig
from engine.contract.rl.format import FormatConfig, FormatPretrainConfig
from engine.data.rows import Question
from engine.data.split import Split
from engine.evaluate.gate import Gate
from engine.models.policy import Policy
from engine.rl.loss_terms.aggregation import masked_mean
from engine.rl.scoring import Batch, score
from engine.run import checkpoint
from engine.run.stop import Declined, check_abort
from engine.sampling.base import Rollout
from engine.sampling.prompts import demonstration

_RECIPE_VERSION = 3
"""Raised when this file changes what it produces, so that old cache entries no longer match."""


_RAMP_STEPS = 20
"""Steps over which the learning rate rises; Adam's first steps are its blindest."""

Encode = Callable[[Question], tuple[int, ...]]
"""From a question to the ids of its bare prompt, as a held-out gate asks it."""
Listener = Callable[[int, str, float], None]
"""`(step, series, value)`."""


class WarmupError(Declined):
    """The target was not reached."""

    def __init__(self, message: str) -> None:
        super().__init__("WARMUP_SHORT", message)


@dataclass(frozen=True)
class WarmupReport:
    """Scores are those at which the training stopped; None for a part that was not asked for."""

    steps: int
    score: float | None
    """Accuracy on `select` after the warm-up."""
    cached: bool
    format_steps: int = 0
    format_score: float | None = None
    """Share of well-formed completions after format pre-training."""

    def __str__(self) -> str:
        form = f"{self.format_steps} steps, well-formed {self.format_score or 0:.3f}"
        task = f"{self.steps} steps, held-out {self.score or 0:.3f}"
        parts = [form] * (self.format_score is not None) + [task] * (self.score is not None)
        return "; then ".join(parts)


_RECIPE: Any = {
    **dict.fromkeys(
        (
            "tuning",
            "lora_rank",
            "lora_alpha",
            "seed",
            "warmup",
            "verifier",
            "success_threshold",
            "max_new_tokens",
            "heldout_temp",
            "prompting",
        ),
        True,
    ),
    "sampling": {"top_p", "top_k", "min_p", "repetition_penalty"},
    "format": {"pretrain", "demonstration", "shape", "pattern"},
    "optim": {"precision"},
}
"""Settings that the weights of step 0 depend on, through training or through when it stops.
Base and `adapter_init` count too, by what stands at their paths."""


def needed(config: RLRunConfig) -> bool:
    """Whether anything is taught before step 0."""
    return config.warmup is not None or config.format.pretrain is not None


def recipe_hash(
    config: RLRunConfig, split: Split, content: Callable[[str | None], str | None]
) -> str:
    """Whatever the weights of step 0 depend on, as a name.

    `content` names what stands at a path: a model that was written over is another one.
    """
    settings = config.model_dump(include=_RECIPE)
    begins = [content(config.base), content(config.adapter_init)]
    recipe = [_RECIPE_VERSION, split.hash, split.solutions_hash, begins, settings]
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:24]


def cached(
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
            return WarmupReport(**{**kept.state, "cached": True})
        shutil.rmtree(folder)
    report = learn()
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)  # a killed one had this number before
    temporary.mkdir(parents=True)
    policy.save(temporary)
    checkpoint.seal(temporary, asdict(report))
    try:
        temporary.rename(folder)
    except OSError:
        # Another lane learnt the same recipe meanwhile; its entry is as good.
        shutil.rmtree(temporary)
    return report


def prepare(
    policy: Policy,
    split: Split,
    config: RLRunConfig,
    *,
    gate: Gate,
    encode: Encode,
    listen: Listener,
) -> WarmupReport:
    """Bring the policy to step 0: format pre-training, then the warm-up, as the config asks.

    Raises WarmupError for a target out of reach, Aborted between two steps.
    """
    report = WarmupReport(0, None, cached=False)
    pretrain = config.format.pretrain
    if pretrain is not None:
        shown = lessons_of(policy, split.train[: pretrain.rows], config.format, encode)
        asked = split.select[: pretrain.eval_rows]
        steps, reached = teach(
            policy,
            shown,
            _format_course(pretrain),
            seed=config.seed,
            evaluate=lambda: _well_formed(gate, asked),
            listen=listen,
        )
        report = replace(report, format_steps=steps, format_score=reached)
    if config.warmup is not None:
        steps, reached = teach(
            policy,
            lessons_of(policy, split.train, config.format, encode),
            _warmup_course(config.warmup),
            seed=config.seed,
            evaluate=lambda: float(gate(0, split.select)),
            listen=listen,
        )
        report = replace(report, steps=steps, score=reached)
    return report


def _well_formed(gate: Gate, asked: Sequence[Question]) -> float:
    """Share of the policy's completions that have the form asked for, right or wrong."""
    said = [(item.rollout.text, item.question.answer) for item in gate(0, asked).items]
    return statistics.fmean(map(float, gate.reward.well_formed(said)))


@dataclass(frozen=True)
class Course:
    """One supervised training: how long, how fast, and when it is enough."""

    name: str
    """Of the section, for its messages and random numbers."""
    setting: str
    """Dotted name of the target, for the message that it was not reached."""
    series: tuple[str, str]
    """Of the loss, and of the score."""
    target: float
    max_steps: int
    batch_size: int
    lr: float
    eval_every: int


def _warmup_course(config: WarmupConfig) -> Course:
    return Course(
        name="warmup",
        setting="warmup.target_heldout",
        series=("warmup/loss", "warmup/heldout"),
        target=config.target_heldout,
        **config.model_dump(include={"max_steps", "batch_size", "lr", "eval_every"}),
    )


def _format_course(config: FormatPretrainConfig) -> Course:
    return Course(
        name="format.pretrain",
        setting="format.pretrain.target",
        series=("format/loss", "format/well_formed"),
        target=config.target,
        **config.model_dump(include={"max_steps", "batch_size", "lr", "eval_every"}),
    )


def teach(
    policy: Policy,
    lessons: Sequence[Rollout],
    course: Course,
    *,
    seed: int,
    evaluate: Callable[[], float],
    listen: Listener,
) -> tuple[int, float]:
    """Steps until `evaluate` reached the target, and what it reached.

    Raises WarmupError when `max_steps` did not suffice, Aborted between two steps. Depends on
    weights, lessons, course and seed alone, so an interrupted one may simply start anew.
    """
    optimizer = torch.optim.AdamW(
        policy.trainable().values(), lr=course.lr, betas=(0.9, 0.95), weight_decay=0.0
    )
    ramp = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / _RAMP_STEPS, 1.0, _RAMP_STEPS)
    draw = random.Random(f"{seed}:{course.name}")
    loss_series, score_series = course.series
    best = 0.0
    for step in range(1, course.max_steps + 1):
        check_abort()
        rows = draw.sample(lessons, min(course.batch_size, len(lessons)))
        listen(step, loss_series, _sft_step(policy, rows, optimizer))
        ramp.step()
        if step % course.eval_every == 0:
            reached = evaluate()
            listen(step, score_series, reached)
            best = max(best, reached)
            if reached >= course.target:
                return step, reached
    raise WarmupError(
        f"{course.name}: {course.max_steps} steps reached {best:.2f} on held-out rows, not "
        f"{course.setting}={course.target}; raise {course.name}.max_steps or lower the target"
    )


def lessons_of(
    policy: Policy, questions: Sequence[Question], config: FormatConfig, encode: Encode
) -> list[Rollout]:
    """Each question's worked answer and the end token, in the form of a rollout."""
    found = []
    for question in questions:
        text = demonstration(question, config)
        answer_ids = policy.encode_answer(text)
        found.append(Rollout(question.id, 0, encode(question), answer_ids, (), text, False, 0))
    return found


def _sft_step(policy: Policy, rows: Sequence[Rollout], optimizer: torch.optim.Optimizer) -> float:
    """Cross-entropy on the answer's tokens; the loss before the update."""
    batch = Batch.of(rows, policy.device)
    with policy.computing():
        scores = score(policy.model, batch, temp=1.0)
    loss = -masked_mean(scores.logprobs_BT, batch.mask_BT).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(policy.trainable().values(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()
