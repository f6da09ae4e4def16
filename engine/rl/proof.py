"""What an `rl_run` proves before step 1: what is sampled is what is trained on, and what is saved
is what trains.

A server is held against the trainer here as the trainer's own sampler is; each sync of its weights
the lane proves by itself (`engine.sampling.vllm.parity`). Shapes: T tokens, V vocabulary.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.contract.errors import NightlaneError
from engine.contract.kinds.rl_run import RLRunConfig
from engine.contract.run_dir import RunDir
from engine.data.rows import Question
from engine.models import alike, lora, precision
from engine.models.forward import forward
from engine.models.policy import build
from engine.rl import parts
from engine.rl.scoring import Batch, score
from engine.rl.trainer import Trainer
from engine.run.checkpoint import Checkpoint, refused
from engine.run.proof import Check, Measured, UnmeasuredError, require_none
from engine.sampling.base import Rollout
from engine.sampling.contradiction import allowed
from engine.sampling.decoding import TOLERANCE
from engine.sampling.vllm.lane import ServingLane

_PROMPTS, _AMONG, _SAMPLES, _TOKENS = 4, 32, 2, 8
_READ = 64
"""Tokens of a prompt that are read twice: logits of long prompts are large."""
_RELOADED = {"fp32": 1e-4, "bf16": 1e-2}
"""Nats: the same weights in the same passes, so rounding alone."""


def checks(
    config: RLRunConfig,
    trainer: Trainer,
    prompts: parts.Prompts,
    step_zero: Path,
    lane: ServingLane | None = None,
) -> Sequence[Check]:
    """`step_zero`: the folder of the first checkpoint, which stands when they are made; `lane`:
    where a server samples.
    """
    checking = _Checking(config, trainer, prompts, step_zero, lane)
    packed = config.optim.batching == "packed"
    return [
        Check(
            "sampler",
            "the sampler's log-probabilities and those of a plain forward pass differ, in nats a "
            "token of the worst completion",
            "what is sampled is not what would be trained on: name another base, or set "
            "optim.precision: fp32",
            checking.sampler,
        ),
        Check(
            "batches",
            f"log-probabilities in a {config.optim.batching} batch of the trainer and of a plain "
            "forward pass differ, in nats a token of the worst completion",
            "what is trained on is not what the model says: name another base, or set "
            + ("optim.batching: padded" if packed else "optim.precision: fp32"),
            checking.batches,
        ),
        Check(
            "reload",
            f"{step_zero.name} loaded anew and the model in memory differ, in nats of a token",
            "what is saved is not what trains: name another base or another tuning, and report "
            "the architecture",
            checking.reload,
        ),
        Check(
            "adapter",
            "the adapter moves log-probabilities, in nats of a token",
            "its tensors are not zero and change nothing: name a PEFT adapter of this base",
            checking.adapter,
        ),
    ]


def stands(run: RunDir, resumed: Checkpoint | None) -> bool:
    """Whether a run that goes on may take step 0 from its folder.

    One that was never proven is made anew: weights that were read back equal themselves.
    """
    if resumed is None or refused(run):
        return False
    return resumed.step > 0 or run.proof.exists()


class _Checking:
    def __init__(
        self,
        config: RLRunConfig,
        trainer: Trainer,
        prompts: parts.Prompts,
        step_zero: Path,
        lane: ServingLane | None,
    ) -> None:
        self._config, self._trainer, self._prompts = config, trainer, prompts
        self._policy, self._step_zero, self._lane = trainer.policy, step_zero, lane

    def sampler(self) -> Measured:
        """A few completions by the run's own sampler, each read again alone and without a cache."""
        config, split = self._config, self._prompts.split
        few = config.model_copy(update={"max_new_tokens": min(config.max_new_tokens, _TOKENS)})
        sample = parts.build_sampler(few, self._policy, "train", split.train, self._lane)
        asked = _of_unequal_length(self._prompts)
        worst = 0.0
        for rollout in (one for group in sample(asked, _SAMPLES) for one in group):
            with torch.no_grad(), self._policy.computing():
                batch = Batch.of([rollout], self._policy.device)
                plain_T = score(self._policy.model, batch, config.temp).logprobs_BT[0].tolist()
            worst = _worse(worst, rollout.logprobs, plain_T)
        return Measured(worst, self._tolerance() if self._lane is None else self._of_server())

    def _of_server(self) -> float:
        """Another program rounds in an order of its own, and a completion may be one token."""
        objective, precision = self._config.objective, self._policy.precision
        return allowed(objective.sampler_gap_limit_used(precision, self._config.temp), 1)

    def batches(self) -> Measured:
        """A few likely completions of unequal length, read by the trainer all at once."""
        texts = list(self._texts())
        asked = [self._likely(ids, _TOKENS - place) for place, ids in enumerate(texts)]
        worst = 0.0
        for rollout, logprobs in zip(asked, self._trainer.logprobs(asked), strict=True):
            worst = _worse(worst, rollout.logprobs, logprobs)
        return Measured(worst, self._tolerance())

    def _likely(self, ids: Tensor, tokens: int) -> Rollout:
        """The prompt's likeliest completion, each token by a plain forward pass over its text."""
        text, logprobs = ids.tolist(), []
        for _ in range(tokens):
            (logits_TV,) = self._read(self._policy.model, [torch.tensor(text)])
            likely = (logits_TV[-1] / self._config.temp).log_softmax(-1).max(-1)
            text.append(int(likely.indices))
            logprobs.append(float(likely.values))
        completion = tuple(text[len(ids) :])
        return Rollout("", 0, tuple(ids.tolist()), completion, tuple(logprobs), "", False, 0)

    def _tolerance(self) -> float:
        # What divides logits divides their rounding.
        return TOLERANCE[self._policy.precision] / min(1.0, self._config.temp)

    def reload(self) -> Measured:
        """The checkpoint as everybody else would load it, tensor by tensor and by its logits; gone
        again when this returns.
        """
        policy = self._policy
        here = self._read(policy.model)
        try:
            there = self._read(self._equal_anew())
        finally:
            alike.release()
        gap = alike.apart(here, there, precision=policy.precision)
        return Measured(gap, _RELOADED[policy.precision])

    def adapter(self) -> Measured | None:
        """The adapter that the run begins from, on against off, as PEFT loads it."""
        if not lora.adapted(self._policy.model):
            return None
        folder = self._config.adapter_init or str(self._step_zero / "adapter")
        model = lora.attach_folder(alike.base_of(self._policy.model), folder)
        moved = alike.with_and_without(model, self._read)
        return None if moved is None else Measured(moved, 0.0, above=True)

    def _equal_anew(self) -> Any:
        """The checkpoint's model. Raises UnmeasuredError unless each of its tensors is that in
        memory.
        """
        try:
            model = self._loaded_anew()
        except NightlaneError as error:
            raise UnmeasuredError(f"it cannot be loaded: {error}") from error
        require_none(alike.unequal(self._policy.model, model))
        return model

    def _loaded_anew(self) -> Any:
        """The whole model, or the adapter on the run's own base, which no step changes."""
        policy = self._policy
        if lora.adapted(policy.model):
            base = alike.base_of(policy.model)
            return lora.attach_folder(base, str(self._step_zero / "adapter"))
        model = build(str(self._step_zero / "model"), self._config.seed).model
        precision.prepare(model, policy.precision)
        return model

    def _read(self, model: Any, texts: Sequence[Tensor] | None = None) -> Sequence[Tensor]:
        """Logits on the CPU, [T, V] each; by default of the texts of a few prompts."""
        with torch.inference_mode(), self._policy.computing():
            return [
                forward(model, input_ids=ids[None].to(self._policy.device), use_cache=False)[0]
                .float()
                .cpu()
                for ids in (self._texts() if texts is None else texts)
            ]

    def _texts(self) -> Iterator[Tensor]:
        for question in _of_unequal_length(self._prompts):
            yield torch.tensor(self._prompts.training(question)[:_READ])


def _worse(worst: float, one: Sequence[float], other: Sequence[float]) -> float:
    """The larger of a gap and that of two readings of a completion, in nats a token; NaN stays."""
    gap = statistics.fmean(abs(a - b) for a, b in zip(one, other, strict=True))
    return max(worst, gap) if gap == gap else gap  # noqa: PLR0124


def _of_unequal_length(prompts: parts.Prompts) -> Sequence[Question]:
    """Training rows from the shortest to the longest of the first ones."""
    rows = sorted(prompts.split.train[:_AMONG], key=lambda row: len(prompts.training(row)))
    if len(rows) <= _PROMPTS:
        return rows
    return [rows[i * (len(rows) - 1) // (_PROMPTS - 1)] for i in range(_PROMPTS)]
