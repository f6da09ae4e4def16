"""The sampler over a serving lane: token ids to a vLLM server, ids and log-probabilities back.

It draws by the weights that were brought to the server last. A question's k completions go out as
one request with one seed, of which the server makes one for each sample; the seed depends on who it
is for and never on what else is drawn. Batches round differently, so a draw may differ in a rare
token between two runs; what was drawn is written down, and a resumed run reads it there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.data.rows import Question
from engine.models.policy import Policy
from engine.sampling.base import Groups, Rollout
from engine.sampling.seeds import draw_number, key
from engine.sampling.vllm.endpoint import Drawn, Request


class Lane(Protocol):
    """Who completes by the weights that were brought last."""

    def complete(self, requests: Sequence[Request]) -> list[list[Drawn]]:
        """k completions of each request, in their order."""
        ...


def _ids_alone(_: Question) -> tuple[Mapping[str, Any], ...]:
    return ()


@dataclass(frozen=True)
class VLLMServerSampler:
    """Raises Aborted while the server decodes, and ServerError when it does not."""

    lane: Lane
    policy: Policy
    seed: int
    purpose: str
    """Keeps training and held-out draws apart: part of each request's seed."""
    temp: float
    """0 is greedy."""
    max_new_tokens: int
    encode: Callable[[Question], tuple[int, ...]]
    """From a question to prompt ids."""
    pin_version: bool = False
    """Draw with the same random numbers at every step, so that gates compare like with like."""
    messages: Callable[[Question], tuple[Mapping[str, Any], ...]] = _ids_alone
    """The same prompt as a conversation, for routes that take no ids."""

    def __call__(self, tasks: Sequence[Question], k: int) -> Groups:
        """k completions of each task, in the tasks' order."""
        requests = [self._request(task, k) for task in tasks]
        groups = self.lane.complete(requests) if requests else []
        return [
            [
                self._rollout(task, sample, request, drawn)
                for sample, drawn in enumerate(group, task.again * k)
            ]
            for task, request, group in zip(tasks, requests, groups, strict=True)
        ]

    def _request(self, task: Question, k: int) -> Request:
        number = draw_number(task.draw, self.policy.version, pinned=self.pin_version)
        ends = tuple(sorted(self.policy.eos_ids))
        return Request(
            prompt_ids=self.encode(task),
            k=k,
            # Of 64 bits, with room for the server to add a sample's index.
            seed=(key(self.seed, self.purpose, task.id, number) >> 2) + task.again * k,
            temp=self.temp,
            max_new_tokens=self.max_new_tokens,
            end_ids=ends,
            id=task.id,
            messages=self.messages(task),
            stop=tuple(str(self.policy.tokenizer.decode([end])) for end in ends),
        )

    def _rollout(self, task: Question, sample: int, request: Request, drawn: Drawn) -> Rollout:
        return Rollout(
            question_id=task.id,
            sample=sample,
            prompt_ids=request.prompt_ids,
            completion_ids=drawn.ids,
            logprobs=drawn.logprobs,
            text=self.policy.decode(drawn.ids, request.prompt_ids),
            truncated=drawn.ids[-1] not in self.policy.eos_ids,
            version=self.policy.version,
            server=drawn.server,
        )
