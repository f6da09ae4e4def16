"""What a `stage2_ab` proves before step 1: what is rolled out is what is learnt on, pictures and
positions included, and what is saved is what trains.

The first rank measures; all of them end together. Shapes: T tokens, V vocabulary.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engine.contract.errors import NightlaneError
from engine.contract.stage2.config import Stage2Config
from engine.models import alike, lora
from engine.models.precision import Precision
from engine.models.qwen3_vl import VisionModel, forward
from engine.run.proof import Check, Measured, UnmeasuredError, Unproven, prove, require_none
from engine.run.ranks import Ranks
from engine.run.recorder import Recorder
from engine.run.stop import rl_hooks
from engine.stage2 import opening
from engine.stage2.corpus import Corpus
from engine.stage2.learn.layout import Layout, ModelInputs, packed, padded
from engine.stage2.rollout.base import seed_base
from engine.stage2.rollout.hf import HFSampler
from engine.stage2.rollout.prompts import Prompt, PromptReader

_PROMPTS, _AMONG, _TOKENS = 3, 8, 8
_SAMPLED = {"fp32": 1e-3, "bf16": 0.1}
"""Nats a token: far above rounding, far below what reading a wrong past makes."""
_RELOADED = {"fp32": 1e-4, "bf16": 1e-2}
"""Nats: the same weights in the same passes, so rounding alone."""


def prove_together(
    config: Stage2Config,
    recorder: Recorder,
    reader: PromptReader,
    corpus: Corpus,
    ranks: Ranks,
    *,
    anew: bool = False,
) -> None:
    """See `engine.run.proof.prove`; what the first rank finds ends every rank."""
    found: list[str] = []
    if ranks.is_first:
        # a request to stop is heard between two steps, by all ranks at once
        with rl_hooks(should_abort=lambda: False) if ranks.size > 1 else nullcontext():
            try:
                prove(recorder, checks(config, recorder, reader, corpus), anew=anew)
            except Unproven as refusal:
                found = [str(refusal)]
    for message in ranks.gather(found):
        raise Unproven(message)


def checks(
    config: Stage2Config, recorder: Recorder, reader: PromptReader, corpus: Corpus
) -> Sequence[Check]:
    """Made while step 0 stands and is in memory."""
    checking = _Checking(config, recorder, reader, corpus)
    is_packed = config.training.packing
    return [
        Check(
            "sampler",
            "log-probabilities of rollouts and of a plain forward pass differ, in nats a token of "
            "the worst answer",
            "what is rolled out is not what would be learnt on: set model.attn_implementation: "
            "sdpa or model.dtype: float32, or name another model",
            checking.sampler,
        ),
        Check(
            "batches",
            f"log-probabilities in a {'packed' if is_packed else 'padded'} batch of "
            "the learner and of a plain forward pass differ, in nats of a token",
            "what is learnt on is not what the model says: name another model, or set "
            + ("training.packing: false" if is_packed else "model.attn_implementation: sdpa"),
            checking.batches,
        ),
        Check(
            "reload",
            f"{recorder.store.folder(0).name} loaded anew and the model in memory differ, in nats "
            "of a token",
            "what is saved is not what trains: name another model or another model.tuning",
            checking.reload,
        ),
        Check(
            "adapter",
            "the adapter moves log-probabilities, in nats of a token",
            "its tensors are not zero and change nothing: set model.tuning: full",
            checking.adapter,
        ),
    ]


class _Checking:
    def __init__(
        self, config: Stage2Config, recorder: Recorder, reader: PromptReader, corpus: Corpus
    ) -> None:
        self._config, self._recorder, self._reader = config, recorder, reader
        self._corpus = corpus
        self._prompts: Sequence[Prompt] = []
        exact = next(reader.vlm.model.parameters()).dtype == torch.float32
        mixed = bool(config.training.passed_on.get("bf16"))
        self._precision: Precision = "fp32" if exact and not mixed else "bf16"
        self._mixed = mixed

    def sampler(self) -> Measured:
        """A few answers as Channel-B samples them, each read again alone and without a cache."""
        settings = self._config.custom.extra.rollout_matching
        few = settings.model_copy(
            update={"max_new_tokens": min(settings.max_new_tokens, _TOKENS), "decode_batch_size": 4}
        )
        vlm, prompts = self._reader.vlm, self._of_unequal_length()
        sampler = HFSampler(vlm, self._reader.pieces, few)
        worst = 0.0
        answers = sampler.traced(prompts, seed_base(self._config.training.seed, 0))
        for prompt, answer in zip(prompts, answers, strict=True):
            shown = ModelInputs((*prompt.ids, *answer.ids), prompt.pictures)
            plain_TV = self._logits(vlm, shown)[len(prompt.ids) - 1 : -1].log_softmax(-1)
            plain_T = plain_TV[range(len(answer.ids)), list(answer.ids)].tolist()
            gap = statistics.fmean(
                abs(a - b) for a, b in zip(answer.logprobs, plain_T, strict=True)
            )
            worst = max(worst, gap) if gap == gap else gap  # noqa: PLR0124 - NaN stays
        return Measured(worst, _SAMPLED[self._precision])

    def batches(self) -> Measured:
        """A few texts of unequal length, laid out together as the learner lays them out."""
        vlm, shown = self._reader.vlm, self._shown()
        if self._config.training.packing:
            layout = packed(shown, vlm)
        else:
            layout = padded(shown, vlm, self._reader.pad_id)
        together = layout.split(self._pass(vlm, layout))
        alone = self._read(vlm.model)
        gap = alike.apart(alone, [one.cpu() for one in together], precision=self._precision)
        return Measured(gap, _SAMPLED[self._precision])

    def reload(self) -> Measured:
        """The checkpoint as everybody else would load it, tensor by tensor and by its logits; gone
        again when this returns.
        """
        here = self._read(self._reader.vlm.model)
        try:
            there = self._read(self._equal_anew())
        finally:
            alike.release()
        gap = alike.apart(here, there, precision=self._precision)
        return Measured(gap, _RELOADED[self._precision])

    def adapter(self) -> Measured | None:
        """On against off."""
        model = self._reader.vlm.model
        if not lora.adapted(model):
            return None
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
        require_none(alike.unequal(self._reader.vlm.model, model))
        return model

    def _loaded_anew(self) -> Any:
        """The whole model, or the adapter on the base that it belongs to: the one that the run
        keeps is read again too, the named one no step has changed.
        """
        vlm, folder = self._reader.vlm, str(self._recorder.store.folder(0))
        if not lora.adapted(vlm.model):
            return opening.load_folder(self._config, folder).model.to(vlm.device)
        base = alike.base_of(vlm.model)
        if opening.keeps_base(self._config):
            kept = str(self._recorder.attempt.run.base)
            base = opening.load_folder(self._config, kept).model.to(vlm.device)
        return lora.attach_folder(base, folder)

    def _read(self, model: Any) -> Sequence[Tensor]:
        vlm = replace(self._reader.vlm, model=model)
        return [self._logits(vlm, shown).cpu() for shown in self._shown()]

    def _shown(self) -> Sequence[ModelInputs]:
        return [ModelInputs(prompt.ids, prompt.pictures) for prompt in self._of_unequal_length()]

    def _logits(self, vlm: VisionModel, shown: ModelInputs) -> Tensor:
        """Of one text alone, [T, V]."""
        return self._pass(vlm, padded([shown], vlm, self._reader.pad_id))[0]

    def _pass(self, vlm: VisionModel, layout: Layout) -> Tensor:
        """Logits of a batch, as the learner has them."""
        was_training = vlm.model.training
        vlm.model.eval()
        mixed: AbstractContextManager[Any] = nullcontext()
        if self._mixed:
            mixed = torch.autocast(vlm.device.type, dtype=torch.bfloat16)
        try:
            with torch.inference_mode(), mixed:
                logits = forward(vlm.model, layout.inputs() | {"input_ids": layout.ids_BT})
                return logits.float()
        finally:
            vlm.model.train(was_training)

    def _of_unequal_length(self) -> Sequence[Prompt]:
        """Prompts of training records from the shortest to the longest of the first ones."""
        if not self._prompts:
            asked = [self._reader(record) for record in self._corpus.train[:_AMONG]]
            asked.sort(key=lambda prompt: len(prompt.ids))
            last = len(asked) - 1
            places = sorted({i * last // (_PROMPTS - 1) for i in range(_PROMPTS)})
            self._prompts = [asked[place] for place in places]
        return self._prompts
