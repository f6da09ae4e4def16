"""Supervised training before step 0: the form of an answer first, then the task itself.

Format pre-training stops when enough completions are well-formed, the warm-up when held-out
accuracy reaches its target: learning is abrupt, so neither stops at a step count. Both teach
training rows only. What came of them is kept in the job cache under the hash of the whole recipe.
"""

from __future__ import annotations

import hashlib
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from engine.contract.kinds.rl_run import RLRunConfig, WarmupConfig
from engine.contract.rl.format import FormatConfig, FormatPretrainConfig
from engine.data.rows import Question
from engine.data.split import Split
from engine.evaluate.gate import Gate, case_of
from engine.models.policy import Policy
from engine.rl.loss_terms import masked_mean
from engine.rl.parts import Prompts
from engine.rl.scoring import Batch, score
from engine.run.checkpoint import Checkpoint
from engine.run.session import Attempt
from engine.run.warmup import Listener, SFTSchedule, WarmupCache, teach
from engine.sampling.base import Rollout
from engine.sampling.prompts import demonstration

_RECIPE_VERSION = 5
"""Raised when this file changes what it produces, so that old cache entries no longer match."""


_RAMP_STEPS = 20
"""Steps over which the learning rate rises; Adam's first steps are its blindest."""

Encode = Callable[[Question], tuple[int, ...]]
"""From a question to the ids of its bare prompt, as a held-out gate asks it."""
MakeRoom = Callable[[], None]


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
            "rewards",
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


def recipe_hash(
    config: RLRunConfig,
    split: Split,
    content: Callable[[str | None], str | None],
    probe: str = "",
) -> str:
    """Whatever the weights of step 0 depend on, as a name.

    `content` names what stands at a path: a model that was written over is another one. `probe` is
    a prompt as this run writes it: its chat template may say what day it is.
    """
    settings = config.model_dump(include=_RECIPE)
    begins = [content(config.base), content(config.adapter_init)]
    recipe = [_RECIPE_VERSION, split.hash, split.solutions_hash, begins, settings, probe]
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:24]


def step_zero(
    attempt: Attempt,
    policy: Policy,
    prompts: Prompts,
    gate: Gate,
    *,
    resumed: Checkpoint | None,
    first: Checkpoint | None,
    make_room: MakeRoom,
) -> dict[str, Any] | None:
    """Bring the policy to step 0; what its warm-up came to, None without one.

    `first`: the checkpoint of step 0 where an earlier attempt left it whole.
    """
    if resumed is not None and first is not None:
        policy.load(first.path, version=0)
        known: dict[str, Any] | None = resumed.state["warmup"]
        return known
    config = attempt.config
    assert isinstance(config, RLRunConfig)
    if config.warmup is None and config.format.pretrain is None:
        return None
    return warm_up(attempt, config, policy, prompts, gate, make_room=make_room)


def warm_up(
    attempt: Attempt,
    config: RLRunConfig,
    policy: Policy,
    prompts: Prompts,
    gate: Gate,
    *,
    make_room: MakeRoom,
) -> dict[str, Any]:
    """Bring the policy to step 0, by an equal recipe's weights from the job cache or by training.

    What it came to, as the result has it. Raises WarmupError and Aborted like `prepare`.
    """
    began = time.monotonic()
    with attempt.warming_up():
        split, encode = prompts.split, prompts.heldout
        probe = "" if policy.chat is None else policy.chat.dated_probe
        name = recipe_hash(config, split, attempt.content, probe)
        cache = WarmupCache(
            Path(attempt.job.cache_dir) / f"warmup-{name}",
            save=policy.save,
            load=lambda folder: policy.load(folder, version=0),
            warn=attempt.warn,
        )

        def listen(step: int, series: str, value: float) -> None:
            attempt.metric(step, {series: value})

        def prepared() -> dict[str, Any]:
            found = prepare(
                policy, split, config, gate=gate, encode=encode, listen=listen, make_room=make_room
            )
            return asdict(found)

        report = cache.kept_or(prepared)
    seconds = round(time.monotonic() - began, 3)
    attempt.events.write("span", name="warmup", seconds=seconds, step=0)
    source = "taken from the cache" if report["cached"] else f"done in {seconds:.0f} s"
    attempt.note("WARMUP", f"warm-up {source}: {WarmupReport(**report)}")
    return report


def prepare(
    policy: Policy,
    split: Split,
    config: RLRunConfig,
    *,
    gate: Gate,
    encode: Encode,
    listen: Listener,
    make_room: MakeRoom = lambda: None,
) -> WarmupReport:
    """Bring the policy to step 0: format pre-training, then the warm-up, as the config asks.

    `make_room`: called before it learns, so that what samples beside it gives its memory back.

    Raises WarmupError for a target out of reach, Aborted between two steps.
    """

    def then_learn(score: float) -> float:
        make_room()
        return score

    make_room()
    report = WarmupReport(0, None, cached=False)
    pretrain = config.format.pretrain
    if pretrain is not None:
        examples = examples_of(policy, split.train[: pretrain.rows], config.format, encode)
        asked = split.select[: pretrain.eval_rows]
        steps, reached = teach(
            _format_schedule(pretrain),
            Sft(policy, examples, pretrain, f"{config.seed}:format.pretrain"),
            lambda: then_learn(_well_formed(gate, asked)),
            listen,
        )
        report = replace(report, format_steps=steps, format_score=reached)
    if config.warmup is not None:
        steps, reached = teach(
            _warmup_schedule(config.warmup),
            Sft(
                policy,
                examples_of(policy, split.train, config.format, encode),
                config.warmup,
                f"{config.seed}:warmup",
            ),
            lambda: then_learn(float(gate(0, split.select))),
            listen,
        )
        report = replace(report, steps=steps, score=reached)
    return report


def _well_formed(gate: Gate, asked: Sequence[Question]) -> float:
    """Share of the policy's completions that have the form asked for, right or wrong."""
    said = [case_of(item.question, item.rollout, 0) for item in gate(0, asked).items]
    return statistics.fmean(map(float, gate.reward.well_formed(said)))


def _warmup_schedule(config: WarmupConfig) -> SFTSchedule:
    return SFTSchedule(
        name="warmup",
        setting="warmup.target_heldout",
        series=("warmup/loss", "warmup/heldout"),
        target=config.target_heldout,
        max_steps=config.max_steps,
        eval_every=config.eval_every,
    )


def _format_schedule(config: FormatPretrainConfig) -> SFTSchedule:
    return SFTSchedule(
        name="format.pretrain",
        setting="format.pretrain.target",
        series=("format/loss", "format/well_formed"),
        target=config.target,
        max_steps=config.max_steps,
        eval_every=config.eval_every,
    )


class Sft:
    """`(step) → loss`: one supervised update on a batch of the examples.

    Depends on weights, examples, settings and `draw` (the name of its random numbers) alone, so an
    interrupted warm-up may simply start anew.
    """

    def __init__(
        self,
        policy: Policy,
        examples: Sequence[Rollout],
        config: WarmupConfig | FormatPretrainConfig,
        draw: str,
    ) -> None:
        self._policy = policy
        self._examples = examples
        self._batch_size = min(config.batch_size, len(examples))
        self._draw = random.Random(draw)
        self._optimizer = torch.optim.AdamW(
            policy.trainable().values(), lr=config.lr, betas=(0.9, 0.95), weight_decay=0.0
        )
        self._ramp = torch.optim.lr_scheduler.LinearLR(
            self._optimizer, 1 / _RAMP_STEPS, 1.0, _RAMP_STEPS
        )

    def __call__(self, step: int) -> float:  # noqa: ARG002 - the ramp counts for itself
        """Cross-entropy on the answers' tokens, before the update."""
        rows = self._draw.sample(self._examples, self._batch_size)
        batch = Batch.of(rows, self._policy.device)
        with self._policy.computing():
            scores = score(self._policy.model, batch, temp=1.0)
        loss = -masked_mean(scores.logprobs_BT, batch.mask_BT).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._policy.trainable().values(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._ramp.step()
        return loss.item()


def examples_of(
    policy: Policy, questions: Sequence[Question], config: FormatConfig, encode: Encode
) -> list[Rollout]:
    """Each question's worked answer and the end token, in the form of a rollout."""
    found = []
    for question in questions:
        text = demonstration(question, config)
        prompt_ids = encode(question)
        answer_ids = policy.encode_answer(text, prompt_ids)
        found.append(Rollout(question.id, 0, prompt_ids, answer_ids, (), text, False, 0))
    return found
