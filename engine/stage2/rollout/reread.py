"""Answers that others drew, read again by the model that trains, on their pictures.

Under the same temperature, penalty and filters as they were drawn under, so that log-probabilities
can be held against those that a server told. Knows no server and no ground truth.

Shapes: T answer tokens, V vocabulary, L tokens of the whole sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
from engine.run.pace import counting
from engine.run.stop import check_abort
from engine.sampling.base import Rollout
from engine.sampling.contradiction import Evidence
from engine.sampling.vllm.endpoint import Drawn
from engine.stage2.rollout.answer_logits import answer_logits
from engine.stage2.rollout.prompts import Prompt, PromptReader

UNTOLD_LIMIT = 1.0
"""Nats a token above the entropy, of answers whose log-probabilities nobody told."""
_WHY = "between two programs in one precision"


@dataclass(frozen=True)
class Reread:
    """`limit`: nats a token that server and trainer may lie apart; `version`: step of the weights
    that train.
    """

    reader: PromptReader
    config: RolloutMatchingConfig
    limit: float
    version: Callable[[], int] = lambda: 0

    def evidence(self, prompts: Sequence[Prompt], answers: Sequence[Drawn]) -> Evidence:
        """How far model and server lie apart; nothing is raised yet but Aborted.

        Sampled tokens without their log-probabilities can only be held to be likely ones.
        """
        exact = self.config.decoding.temperature == 0 or all(one.logprobs for one in answers)
        evidence = Evidence(self.limit if exact else UNTOLD_LIMIT, _WHY)
        asked = list(zip(prompts, answers, strict=True))
        for prompt, drawn in counting("read again", asked):
            check_abort()
            if drawn.ids:
                evidence.add(self._rollout(prompt, drawn), self._apart(prompt, drawn))
        return evidence

    def _rollout(self, prompt: Prompt, drawn: Drawn) -> Rollout:
        return Rollout(
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

    def _apart(self, prompt: Prompt, drawn: Drawn) -> float:
        """How far the trainer's numbers for an answer lie from what the server told, or implied;
        nats over all its tokens.
        """
        ids = list(drawn.ids)
        logits_TV = answer_logits(self.reader, prompt, ids)
        ours_TV = self._log_p(prompt, drawn, logits_TV)
        ours_T = ours_TV[range(len(ids)), ids]
        if drawn.logprobs:
            return float((ours_T.cpu() - torch.tensor(drawn.logprobs)).abs().sum())
        if self.config.decoding.temperature == 0:
            return float((ours_TV.max(-1).values - ours_T).sum())  # the likeliest was to be taken
        surprise_T = -ours_T - torch.special.entr(ours_TV.exp()).sum(-1)
        return float(surprise_T.sum().clamp(min=0))

    def _log_p(self, prompt: Prompt, drawn: Drawn, logits_TV: Tensor) -> Tensor:
        """[T, V]: of the distribution that each token was drawn from.

        A drawn token that only rounding left out of top-p or top-k keeps what it had before them.
        """
        ids = drawn.ids
        sequence, begun = (*prompt.ids, *ids), len(prompt.ids)
        seen_TL = torch.tensor(sequence, device=logits_TV.device).repeat(len(ids), 1)
        for row in range(len(ids)):
            seen_TL[row, begun + row :] = sequence[0]  # what is not there yet counts for nothing
        whole_TV: Any = self._shaping(forbids=drawn.forbids)(seen_TL, logits_TV)  # type: ignore[arg-type]
        kept_TV = self._filters()(seen_TL, whole_TV).log_softmax(-1)  # type: ignore[arg-type]
        drawn_T1 = torch.tensor(ids, device=logits_TV.device)[:, None]
        before_T1 = whole_TV.log_softmax(-1).gather(-1, drawn_T1)
        after_T1 = kept_TV.gather(-1, drawn_T1)
        return kept_TV.scatter(-1, drawn_T1, after_T1.where(after_T1.isfinite(), before_T1))

    def _shaping(self, *, forbids: bool) -> LogitsProcessorList:
        """What changes logits of a draw, in the server's order."""
        penalty, temp = self.config.repetition_penalty, self.config.decoding.temperature
        found = LogitsProcessorList()
        if forbids:
            never = sorted(self.reader.pieces.placeholders)
            found.append(SuppressTokensLogitsProcessor(never))
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
