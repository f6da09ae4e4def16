"""The `hf` rollout backend: the training model itself, by Transformers' `generate`.

A decode call holds `decode_batch_size` prompts and runs under a seed of its own; the process's
random state stays as it was. Nothing is inherited from the checkpoint's generation config: its
sampling defaults would change rollouts unseen. Knows no ground truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.models.qwen3_vl import VisionModel
from engine.run.pace import advance, counted
from engine.run.stop import check_abort
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.rollout.base import Response, call_seed
from engine.stage2.rollout.prompts import Prompt, join
from engine.stage2.rollout.reading import ahead
from engine.stage2.rollout.repeat_guard import RepeatGuard


class Traced(NamedTuple):
    """An answer as it was drawn, with its end token where it has one."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of each id at temperature 1, before any filter or penalty."""


@dataclass(frozen=True)
class HFSampler:
    """Raises Aborted between two decode steps when asked to stop."""

    vlm: VisionModel
    pieces: TokenPieces
    config: RolloutMatchingConfig

    def __call__(self, prompts: Sequence[Prompt], seed_base: int) -> list[Response]:
        """One answer for each prompt, in order."""
        size = self.config.answers_a_call
        answers: list[Response] = []
        with _evaluating(self.vlm), torch.inference_mode(), counted("decode", len(prompts)):
            for some in ahead(prompts, size):
                answers += self._decode(some, call_seed(seed_base, len(answers)))
                advance(len(some))
        return answers

    def decoding(self) -> dict[str, Any]:
        """What a step logs of how it decoded."""
        decoding = self.config.decoding
        return {
            "backend": "hf",
            **decoding.model_dump(),
            "repetition_penalty": self.config.repetition_penalty,
            "max_new_tokens": self.config.max_new_tokens,
            "decode_batch_size": self.config.answers_a_call,
        }

    def traced(self, prompts: Sequence[Prompt], seed: int) -> list[Traced]:
        """One decode call, with what the model gave each token of its answers."""
        with _evaluating(self.vlm), torch.inference_mode():
            out, _ = self._generate(prompts, seed, output_logits=True, return_dict_in_generate=True)
            told_BTV = torch.stack(out.logits, 1).float().log_softmax(-1)
        answers_BT = out.sequences[:, -told_BTV.shape[1] :]
        logprobs_BT = told_BTV.gather(-1, answers_BT[..., None]).squeeze(-1)
        found = []
        for ids, logprobs in zip(answers_BT.tolist(), logprobs_BT.tolist(), strict=True):
            ends = ids.index(self.pieces.end_id) + 1 if self.pieces.end_id in ids else len(ids)
            found.append(Traced(tuple(ids[:ends]), tuple(logprobs[:ends])))
        return found

    def _decode(self, prompts: Sequence[Prompt], seed: int) -> list[Response]:
        out_BT, watch = self._generate(prompts, seed)
        longest = max(len(p.ids) for p in prompts)
        return [
            self._response(row[longest:], cut)
            for row, cut in zip(out_BT.tolist(), watch.cuts, strict=True)
        ]

    def _generate(self, prompts: Sequence[Prompt], seed: int, **more: Any) -> tuple[Any, _Watch]:
        """What Transformers' `generate` returns, and who watched it."""
        device = self.vlm.device
        longest = max(len(p.ids) for p in prompts)
        gaps = [longest - len(p.ids) for p in prompts]
        ids_BT = torch.tensor(
            [
                [self.pieces.pad_id] * gap + list(p.ids)
                for p, gap in zip(prompts, gaps, strict=True)
            ],
            device=device,
        )
        mask_BT = torch.tensor([[0] * gap + [1] * (longest - gap) for gap in gaps], device=device)
        pictures = join([p.pictures for p in prompts])
        watch = _Watch(self.config, self.pieces, longest, len(prompts))
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            model: Any = self.vlm.model
            out = model.generate(
                input_ids=ids_BT,
                attention_mask=mask_BT,
                mm_token_type_ids=(ids_BT == self.vlm.image_token_id).int(),
                pixel_values=pictures.pixel_values.to(device),
                image_grid_thw=pictures.image_grid_thw.to(device),
                generation_config=self._generation_config(**more),
                stopping_criteria=StoppingCriteriaList([watch]),
            )
        return out, watch

    def _response(self, ids: list[int], cut: int | None) -> Response:
        if cut is not None:
            return Response(tuple(ids[:cut]), ended=False, guarded=True)
        if self.pieces.end_id in ids:
            return Response(tuple(ids[: ids.index(self.pieces.end_id)]), ended=True)
        return Response(tuple(ids), ended=False)

    def _generation_config(self, **more: Any) -> GenerationConfig:
        decoding = self.config.decoding
        sampling: dict[str, Any] = {"do_sample": False}
        if decoding.temperature > 0:
            sampling = {
                "do_sample": True,
                "temperature": decoding.temperature,
                "top_p": decoding.top_p,
                "top_k": max(decoding.top_k, 0),  # Transformers' word for all is 0
            }
        return GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=self.config.max_new_tokens,
            repetition_penalty=self.config.repetition_penalty,
            eos_token_id=self.pieces.end_id,
            pad_token_id=self.pieces.pad_id,
            suppress_tokens=sorted(self.pieces.placeholders) or None,
            remove_invalid_values=True,  # broken weights answer nonsense; the learner says why
            **sampling,
            **more,
        )


class _Watch(StoppingCriteria):
    """Asked after each token: has somebody asked us to stop, does a row repeat itself?"""

    def __init__(
        self, config: RolloutMatchingConfig, pieces: TokenPieces, prompt_length: int, rows: int
    ) -> None:
        self._guards = [RepeatGuard(config.repeat_terminate) for _ in range(rows)]
        self._pieces = pieces
        self._prompt_length = prompt_length
        self._ended = [False] * rows
        self.cuts: list[int | None] = [None] * rows
        """Length of each row that the guard ended."""

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Any:  # noqa: ARG002 - its contract
        check_abort()
        length = input_ids.shape[1] - self._prompt_length
        for row, token in enumerate(input_ids[:, -1].tolist()):
            if self._ended[row]:
                continue
            if token == self._pieces.end_id:
                self._ended[row] = True
            elif self._guards[row].feed(token, self._pieces.of(token)):
                self._ended[row] = True
                self.cuts[row] = length
        return torch.tensor([cut is not None for cut in self.cuts], device=input_ids.device)


@contextmanager
def _evaluating(vlm: VisionModel) -> Iterator[None]:
    """Dropout off, the cache on, and the checkpoint's generation defaults out of the way."""
    model: Any = vlm.model
    base: Any = model.get_base_model() if hasattr(model, "get_base_model") else model
    was_training, defaults = model.training, base.generation_config
    model.eval()
    base.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        base.generation_config = defaults
        model.train(was_training)
        vlm.core.rope_deltas = None  # generate leaves the last batch's behind
