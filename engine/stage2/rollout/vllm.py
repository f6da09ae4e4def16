"""The `vllm` rollout backend: servers draw, and the model that trains reads again what they drew.

Conversations and pictures go out, token ids come back with those of the prompt, which must be the
run's own. Every answer that is trained on, and a few of an evaluation, are read again, pictures
included; what the model contradicts ends the run. Knows no ground truth.

Shapes: T answer tokens, V vocabulary, L tokens of the whole sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.contract.stage2.rollout_matching import RolloutMatchingConfig
from engine.models.qwen3_vl import forward
from engine.run.stop import check_abort
from engine.sampling.base import Rollout
from engine.sampling.contradiction import Evidence
from engine.sampling.vllm.endpoint import Drawn, Request
from engine.stage2.learn.layout import ModelInputs, padded
from engine.stage2.rollout.base import Response, call_seed
from engine.stage2.rollout.pictures import DataURLs
from engine.stage2.rollout.prompts import Pictures, Prompt, PromptReader
from engine.stage2.rollout.repeat_guard import RepeatGuard

FEW = 16
"""Answers of an evaluation that are read again; one of each server at least."""


UNTOLD_LIMIT = 1.0
"""Nats a token above the entropy, of answers whose log-probabilities nobody told."""
_WHY = "between two programs in one precision"


class Lane(Protocol):
    """Servers that answer with the weights that train."""

    def bring(self) -> None:
        """They do from now on."""
        ...

    def complete(self, requests: Sequence[Request]) -> Sequence[Sequence[Drawn]]:
        """Completions of each request, in their order."""
        ...


@dataclass(frozen=True)
class VLLMSampler:
    """Raises ServerError, SamplerContradicted, and Aborted when asked to stop.

    `reads`: how many of a call's answers the model reads again; None is all. `facts` are logged
    with how a step decoded.
    """

    lane: Lane
    reader: PromptReader
    config: RolloutMatchingConfig
    limit: float
    """Nats a token that server and trainer may lie apart."""
    reads: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    version: Callable[[], int] = lambda: 0
    """Step of the weights that train."""

    def __call__(self, prompts: Sequence[Prompt], seed_base: int) -> list[Response]:
        """One answer for each prompt, in order."""
        self.lane.bring()
        # Read one at a time: patches are large, and a request holds none.
        asked = [prompts[place] for place in range(len(prompts))] if self.reads is None else prompts
        requests = [
            self._request(asked[place], call_seed(seed_base, place)) for place in range(len(asked))
        ]
        answers = [self._before_pictures(drawn) for [drawn] in self.lane.complete(requests)]
        evidence = self._evidence(answers)
        for place in self._read_again(answers):
            check_abort()
            if answers[place].ids:
                self._read(evidence, asked[place], answers[place])
        evidence.require(f"drawn by the weights of step {self.version()}")
        return [self._response(drawn) for drawn in answers]

    def decoding(self) -> dict[str, Any]:
        """What a step logs of how it decoded."""
        return {
            "backend": "vllm",
            **self.facts,
            **self.config.decoding.model_dump(),
            "repetition_penalty": self.config.repetition_penalty,
            "max_new_tokens": self.config.max_new_tokens,
        }

    # --- inside ---

    def _request(self, prompt: Prompt, seed: int) -> Request:
        decoding, end = self.config.decoding, self.reader.pieces.end_id
        return Request(
            prompt.ids,
            k=1,
            seed=seed,
            temp=decoding.temperature,
            max_new_tokens=self.config.max_new_tokens,
            end_ids=(end,),
            id=prompt.asked.where,
            top_p=decoding.top_p,
            top_k=max(decoding.top_k, 0),
            repetition_penalty=self.config.repetition_penalty,
            messages=prompt.asked.turns,
            images=DataURLs(prompt.asked.images),
            stop=(str(self.reader.vlm.tokenizer.convert_ids_to_tokens(end)),),
            forbidden=tuple(sorted(self.reader.pieces.placeholders)),
        )

    def _before_pictures(self, drawn: Drawn) -> Drawn:
        """Cut in front of the first picture token, which only ms-swift's routes let through."""
        places = self.reader.pieces.placeholders
        cut = next((i for i, token in enumerate(drawn.ids) if token in places), len(drawn.ids))
        return replace(drawn, ids=drawn.ids[:cut], logprobs=drawn.logprobs[:cut])

    def _response(self, drawn: Drawn) -> Response:
        """Without its end; cut where it begins to repeat itself."""
        guard = RepeatGuard(self.config.repeat_terminate)
        for place, token in enumerate(drawn.ids):
            if token == self.reader.pieces.end_id:
                return Response(drawn.ids[:place], ended=True)
            if guard.feed(token, self.reader.pieces.of(token)):
                return Response(drawn.ids[: place + 1], ended=False, guarded=True)
        return Response(drawn.ids, ended=False)

    def _read_again(self, answers: Sequence[Drawn]) -> Sequence[int]:
        """Places of answers: evenly spread, and the first of each server."""
        if self.reads is None:
            return range(len(answers))
        stride = max(1, -(-len(answers) // self.reads))
        firsts = {one.server: place for place, one in reversed(list(enumerate(answers)))}
        return sorted({*range(0, len(answers), stride), *firsts.values()})

    def _evidence(self, answers: Sequence[Drawn]) -> Evidence:
        """Sampled tokens without their log-probabilities can only be held to be likely ones."""
        exact = self.config.decoding.temperature == 0 or all(one.logprobs for one in answers)
        return Evidence(self.limit, _WHY) if exact else Evidence(UNTOLD_LIMIT, _WHY)

    def _read(self, evidence: Evidence, prompt: Prompt, drawn: Drawn) -> None:
        """How far the trainer's numbers for an answer lie from what the server told, or implied."""
        answer = Rollout(
            prompt.asked.where,
            0,
            prompt.ids,
            drawn.ids,
            drawn.logprobs,
            text="",
            truncated=False,
            version=self.version(),
            server=drawn.server,
        )
        ours_TV = self._log_p(prompt, drawn.ids)
        ours_T = ours_TV[range(len(drawn.ids)), list(drawn.ids)]
        if drawn.logprobs:
            apart = (ours_T - torch.tensor(drawn.logprobs)).abs().sum()
        elif self.config.decoding.temperature == 0:
            apart = (ours_TV.max(-1).values - ours_T).sum()  # the likeliest was to be taken
        else:
            surprise_T = -ours_T - torch.special.entr(ours_TV.exp()).sum(-1)
            apart = surprise_T.sum().clamp(min=0)
        evidence.add(answer, float(apart))

    @torch.inference_mode()
    def _log_p(self, prompt: Prompt, ids: Sequence[int]) -> Tensor:
        """[T, V]: of the distribution that each token was drawn from.

        A drawn token that only rounding left out of top-p or top-k keeps what it had before them.
        """
        sequence, begun = (*prompt.ids, *ids), len(prompt.ids)
        seen_TL = torch.tensor(sequence).repeat(len(ids), 1)
        for row in range(len(ids)):
            seen_TL[row, begun + row :] = sequence[0]  # what is not there yet counts for nothing
        logits_TV = self._logits(sequence, prompt.pictures)[begun - 1 : -1]
        whole_TV: Any = self._shaping()(seen_TL, logits_TV)  # type: ignore[arg-type]
        kept_TV = self._filters()(seen_TL, whole_TV).log_softmax(-1)  # type: ignore[arg-type]
        drawn_T1 = torch.tensor(ids)[:, None]
        before_T1 = whole_TV.log_softmax(-1).gather(-1, drawn_T1)
        after_T1 = kept_TV.gather(-1, drawn_T1)
        return kept_TV.scatter(-1, drawn_T1, after_T1.where(after_T1.isfinite(), before_T1))

    def _logits(self, sequence: tuple[int, ...], pictures: Pictures) -> Tensor:
        """[L, V] by a plain forward pass, in fp32 on the CPU."""
        vlm = self.reader.vlm
        layout = padded([ModelInputs(sequence, pictures)], vlm, self.reader.pad_id)
        was_training = vlm.model.training
        vlm.model.eval()
        try:
            return (
                forward(vlm.model, layout.inputs() | {"input_ids": layout.ids_BT})[0].float().cpu()
            )
        finally:
            vlm.model.train(was_training)

    def _shaping(self) -> LogitsProcessorList:
        """What changes logits of a draw, in the server's order."""
        never = sorted(self.reader.pieces.placeholders)
        penalty, temp = self.config.repetition_penalty, self.config.decoding.temperature
        found = LogitsProcessorList([SuppressTokensLogitsProcessor(never)])
        if penalty != 1:
            found.append(RepetitionPenaltyLogitsProcessor(penalty))
        if temp > 0:
            found.append(TemperatureLogitsWarper(temp))
        return found

    def _filters(self) -> LogitsProcessorList:
        """What leaves tokens out; nothing where the likeliest is taken anyway."""
        decoding, found = self.config.decoding, LogitsProcessorList()
        if decoding.temperature > 0 and decoding.top_k > 0:
            found.append(TopKLogitsWarper(decoding.top_k))
        if decoding.temperature > 0 and decoding.top_p < 1:
            found.append(TopPLogitsWarper(decoding.top_p))
        return found
