"""The policy as a model of the harness: its own class for Transformers models over loaded weights.

It reads, decodes and cuts as the harness's `hf` model does. What is added: answers that are known
already are not asked for again, each batch is handed on as it ends, and it is told which answers
ran into the limit. Generation settings of the model's folder, a repetition penalty say, count here
as they do there; the run's own sampler leaves them out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from torch import Tensor

from engine.contract.errors import RLLoopError
from engine.evaluate.harness.results import Answer, OnItem, Recall
from engine.models.policy import Policy
from engine.run.stop import check_abort

RowOf = Callable[[Instance], str]
"""From a request to the id of the row that it asks."""


class PolicyLM(HFLM):  # type: ignore[misc]  # lm_eval has no types
    """Raises Aborted between two batches when asked to stop."""

    def __init__(
        self,
        policy: Policy,
        batch_size: int,
        row_of: RowOf,
        recall: Recall,
        on_item: OnItem,
        **template_variables: Any,
    ) -> None:
        # a copy, because a pad token is chosen on it
        super().__init__(
            pretrained=policy.model,
            tokenizer=copy.deepcopy(policy.tokenizer),
            backend="causal",
            batch_size=batch_size,
            max_length=policy.window,
            chat_template_args=template_variables,
        )
        self.policy, self.row_of, self.recall, self.on_item = policy, row_of, recall, on_item
        self.answers: dict[str, Answer] = {}
        self._batch: list[tuple[list[int], list[int]]] = []

    def generate_until(self, requests: list[Instance], **_: Any) -> list[str]:
        """Texts in the order of the requests; all of them are in `answers`."""
        for request in requests:
            known = self.recall(self.row_of(request), request.args[0])
            if known is not None:
                self.answers[known.row] = known
        left = [one for one in requests if self.row_of(one) not in self.answers]
        left.sort(key=self._longest_first)
        self._refuse_too_long(left)
        for start in range(0, len(left), self.batch_size):
            check_abort()
            self._answer(left[start : start + self.batch_size])
        return [self.answers[self.row_of(request)].text for request in requests]

    def _longest_first(self, request: Instance) -> tuple[int, str]:
        """As the harness sorts what it is given, so that a batch keeps its order there."""
        prompt = request.args[0]
        return -len(self.tok_encode(prompt)), prompt

    def _refuse_too_long(self, requests: Sequence[Instance]) -> None:
        """The harness would cut the beginning of a prompt away and go on."""
        if not requests:
            return
        longest = len(self.tok_encode(requests[0].args[0]))
        limit = requests[0].args[1]["max_gen_toks"]
        if longest + limit > self.max_length:
            raise RLLoopError.of(
                "max_new_tokens",
                limit,
                f"leaves {self.max_length - limit} tokens of the model's window of "
                f"{self.max_length} for a prompt, and row {self.row_of(requests[0])!r} has "
                f"{longest}",
                "lower max_new_tokens or shots",
            )

    def _answer(self, requests: list[Instance]) -> None:
        self._batch.clear()
        with torch.inference_mode(), self.policy.computing():
            texts = super().generate_until(requests, disable_tqdm=True)
        for request, text, (prompt, drawn) in zip(requests, texts, self._batch, strict=True):
            answer = Answer(
                row=self.row_of(request),
                prompt=request.args[0],
                text=text,
                truncated=self._cut_off(drawn, request.args[1]["until"]),
                prompt_ids=prompt,
                completion_ids=drawn,
            )
            self.answers[answer.row] = answer
            self.on_item(answer)

    def _model_generate(
        self, context: Tensor, max_length: int, stop: list[str], **kwargs: Any
    ) -> Tensor:
        """[B, prompt + completion], as the harness's; the ids of each row are kept."""
        rows: Tensor = super()._model_generate(context, max_length, stop, **kwargs)
        read = kwargs["attention_mask"].bool()
        width = context.shape[1]
        for ids, mask in zip(rows, read, strict=True):
            self._batch.append((ids[:width][mask].tolist(), self._to_end(ids[width:].tolist())))
        return rows

    def _to_end(self, drawn: list[int]) -> list[int]:
        """Without what fills a row up behind its end token."""
        ends = [place for place, token in enumerate(drawn) if token in self.policy.eos_ids]
        return drawn[: ends[0] + 1] if ends else drawn

    def _cut_off(self, drawn: Sequence[int], until: Sequence[str]) -> bool:
        if drawn and drawn[-1] in self.policy.eos_ids:
            return False
        text = self.tok_decode(drawn)
        return not any(stop in text for stop in until if stop)
