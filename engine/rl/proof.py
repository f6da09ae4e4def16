"""What an `rl_run` proves before step 1: what is sampled is what is trained on, and what is saved
is what trains.

With a server the lane proves the sampler by itself (`engine.sampling.vllm.parity`). Shapes: T
tokens, V vocabulary.
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
from engine.models.policy import Policy, build
from engine.rl import parts
from engine.rl.scoring import Batch, score
from engine.run.checkpoint import Checkpoint, refused
from engine.run.proof import Check, Measured, UnmeasuredError
from engine.sampling.decoding import TOLERANCE

_PROMPTS, _AMONG, _SAMPLES, _TOKENS = 4, 32, 2, 8
_READ = 64
"""Tokens of a prompt that are read twice: logits of long prompts are large."""
_RELOADED = {"fp32": 1e-4, "bf16": 1e-2}
"""Nats: the same weights in the same passes, so rounding alone."""


def checks(
    config: RLRunConfig, policy: Policy, prompts: parts.Prompts, step_zero: Path
) -> Sequence[Check]:
    """`step_zero`: the folder of the first checkpoint, which stands when they are made."""
    checking = _Checking(config, policy, prompts, step_zero)
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
        self, config: RLRunConfig, policy: Policy, prompts: parts.Prompts, step_zero: Path
    ) -> None:
        self._config, self._policy, self._prompts = config, policy, prompts
        self._step_zero = step_zero

    def sampler(self) -> Measured | None:
        """A few completions by the run's own sampler, each read again alone and without a cache."""
        config, split = self._config, self._prompts.split
        if config.serves:
            return None
        few = config.model_copy(update={"max_new_tokens": min(config.max_new_tokens, _TOKENS)})
        sample = parts.build_sampler(few, self._policy, "train", split.train)
        asked = _of_unequal_length(self._prompts)
        worst = 0.0
        for rollout in (one for group in sample(asked, _SAMPLES) for one in group):
            with torch.no_grad(), self._policy.computing():
                batch = Batch.of([rollout], self._policy.device)
                plain_T = score(self._policy.model, batch, config.temp).logprobs_BT[0].tolist()
            gap = statistics.fmean(
                abs(a - b) for a, b in zip(rollout.logprobs, plain_T, strict=True)
            )
            worst = max(worst, gap) if gap == gap else gap  # noqa: PLR0124 - NaN stays
        # What divides logits divides their rounding.
        return Measured(worst, TOLERANCE[self._policy.precision] / min(1.0, config.temp or 1.0))

    def reload(self) -> Measured:
        """The checkpoint as everybody else would load it; gone again when this returns."""
        policy = self._policy
        here = self._read(policy.model)
        try:
            there = self._read(self._loaded_anew())
        except NightlaneError as error:
            raise UnmeasuredError(f"it cannot be loaded: {error}") from error
        finally:
            alike.release()
        return Measured(alike.apart(here, there), _RELOADED[policy.precision])

    def adapter(self) -> Measured | None:
        """The adapter that the run begins from, on against off, as PEFT loads it."""
        if not lora.adapted(self._policy.model):
            return None
        folder = self._config.adapter_init or str(self._step_zero / "adapter")
        model = lora.attach_folder(alike.base_of(self._policy.model), folder)
        moved = alike.with_and_without(model, self._read)
        return None if moved is None else Measured(moved, 0.0, above=True)

    def _loaded_anew(self) -> Any:
        """The whole model, or the adapter on the run's own base, which no step changes."""
        policy = self._policy
        if lora.adapted(policy.model):
            base = alike.base_of(policy.model)
            return lora.attach_folder(base, str(self._step_zero / "adapter"))
        model = build(str(self._step_zero / "model"), self._config.seed).model
        precision.prepare(model, policy.precision)
        return model

    def _read(self, model: Any) -> Sequence[Tensor]:
        """On the CPU, [T, V] each."""
        with torch.inference_mode(), self._policy.computing():
            return [
                forward(model, input_ids=ids[None].to(self._policy.device), use_cache=False)[0]
                .float()
                .cpu()
                for ids in self._texts()
            ]

    def _texts(self) -> Iterator[Tensor]:
        for question in _of_unequal_length(self._prompts):
            yield torch.tensor(self._prompts.training(question)[:_READ])


def _of_unequal_length(prompts: parts.Prompts) -> Sequence[Question]:
    """Training rows from the shortest to the longest of the first ones."""
    rows = sorted(prompts.split.train[:_AMONG], key=lambda row: len(prompts.training(row)))
    if len(rows) <= _PROMPTS:
        return rows
    return [rows[i * (len(rows) - 1) // (_PROMPTS - 1)] for i in range(_PROMPTS)]
