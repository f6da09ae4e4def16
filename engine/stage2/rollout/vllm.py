"""The `vllm` rollout backend: servers draw, and the model that trains reads again what they drew.

Conversations and pictures go out, token ids come back with those of the prompt, which must be the
run's own. Every answer that is trained on, and a few of an evaluation, are read again, pictures
included; what the model contradicts ends the run. Knows no ground truth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from engine.contract.stage2.rollout_matching import DecodingConfig, RolloutMatchingConfig
from engine.run.beside import Beside
from engine.run.pace import counted
from engine.sampling.vllm.endpoint import Drawn, Request
from engine.sampling.vllm.infer_lane import Witness
from engine.stage2.parse.pieces import TokenPieces
from engine.stage2.rollout.base import Response, call_seed
from engine.stage2.rollout.pictures import DataURLs
from engine.stage2.rollout.prompts import Prompt, PromptReader
from engine.stage2.rollout.reading import begin
from engine.stage2.rollout.repeat_guard import RepeatGuard
from engine.stage2.rollout.reread import Reread

FEW = 16
"""Answers of an evaluation that are read again; one of each server at least."""
_SHORT = 8
"""Tokens of an answer that a sync is proven by."""


class Lane(Protocol):
    """Servers that answer with the weights that train."""

    def bring(self) -> None:
        """They do from now on."""
        ...

    def complete(self, requests: Sequence[Request]) -> Sequence[Sequence[Drawn]]:
        """Completions of each request, in their order."""
        ...


class Streamed(NamedTuple):
    """The answers of one decode call of a stream."""

    prompts: Sequence[Prompt]
    responses: list[Response]
    seconds: float
    """How long they were drawn."""
    waited: float
    """Of that, how long nothing else was done."""


class _Ready(NamedTuple):
    """A decode call that is done."""

    asked: Sequence[Prompt]
    answers: Sequence[Sequence[Drawn]]
    seconds: float
    waited: float


class _Coming(NamedTuple):
    """A decode call that is under way."""

    asked: Sequence[Prompt]
    call: Beside[Sequence[Sequence[Drawn]]]

    def waited_for(self) -> _Ready:
        """Raises what the call raised."""
        began = time.perf_counter()
        answers = self.call.result()
        return _Ready(self.asked, answers, self.call.seconds, time.perf_counter() - began)


@dataclass(frozen=True)
class VLLMSampler:
    """Raises ServerError, SamplerContradicted, and Aborted when asked to stop.

    `limit`: nats a token that server and trainer may lie apart; `reads`: how many of a call's
    answers the model reads again, None is all; `facts` of now are logged with how a step decoded;
    `version`: step of the weights that train.
    """

    lane: Lane
    reader: PromptReader
    config: RolloutMatchingConfig
    limit: float
    reads: int | None = None
    facts: Callable[[], Mapping[str, Any]] = dict
    version: Callable[[], int] = lambda: 0

    def __call__(self, prompts: Sequence[Prompt], seed_base: int) -> list[Response]:
        """One answer for each prompt, in order."""
        self.lane.bring()
        asked = prompts
        if self.reads is None:  # all of them are learnt, and read while servers draw
            asked = prompts[:]
            begin(asked)
        with counted("decode", len(asked)):
            drawn = self.lane.complete(self._requests(asked, seed_base))
        return self._believed(asked, drawn)

    def stream(self, prompts: Sequence[Prompt], seed_base: int) -> Generator[Streamed]:
        """The same answers, a decode call at a time: while one is worked on, the next is drawn, and
        no more than that.
        """
        self.lane.bring()
        coming: _Coming | None = None
        try:
            for first in range(0, len(prompts), self.config.answers_a_call):
                asked = prompts[first : first + self.config.answers_a_call]
                requests = self._requests(asked, call_seed(seed_base, first))
                ready = coming and coming.waited_for()
                coming = _Coming(asked, Beside(partial(self.lane.complete, requests), "rollouts"))
                begin(asked)
                if ready:
                    yield self._streamed(ready)
            if coming:
                yield self._streamed(coming.waited_for())
        finally:
            if coming:
                coming.call.close()

    def _streamed(self, ready: _Ready) -> Streamed:
        responses = self._believed(ready.asked, ready.answers)
        return Streamed(ready.asked, responses, ready.seconds, ready.waited)

    def _requests(self, asked: Sequence[Prompt], seed_base: int) -> list[Request]:
        return [
            request_of(asked[place], call_seed(seed_base, place), self.config, self.reader)
            for place in range(len(asked))
        ]

    def _believed(
        self, asked: Sequence[Prompt], drawn: Sequence[Sequence[Drawn]]
    ) -> list[Response]:
        """Answers that the model does not contradict. Raises SamplerContradicted."""
        answers = [before_pictures(one, self.reader.pieces) for [one] in drawn]
        places = self._read_again(answers)
        reread = Reread(self.reader, self.config, self.limit, self.version)
        evidence = reread.evidence([asked[i] for i in places], [answers[i] for i in places])
        evidence.require(f"drawn by the weights of step {self.version()}")
        return [self._response(one) for one in answers]

    def decoding(self) -> dict[str, Any]:
        """What a step logs of how it decoded."""
        return {
            "backend": "vllm",
            **self.facts(),
            **self.config.decoding.model_dump(),
            "repetition_penalty": self.config.repetition_penalty,
            "max_new_tokens": self.config.max_new_tokens,
        }

    # --- inside ---

    def _response(self, drawn: Drawn) -> Response:
        """Without its end; cut where it begins to repeat itself."""
        guard, pieces = RepeatGuard(self.config.repeat_terminate), self.reader.pieces
        for place, token in enumerate(drawn.ids):
            if token == pieces.end_id:
                return Response(drawn.ids[:place], ended=True)
            if guard.feed(token, pieces.of(token)):
                return Response(drawn.ids[: place + 1], ended=False, guarded=True)
        return Response(drawn.ids, ended=False)

    def _read_again(self, answers: Sequence[Drawn]) -> Sequence[int]:
        """Places of answers: evenly spread, and the first of each server."""
        if self.reads is None:
            return range(len(answers))
        stride = max(1, -(-len(answers) // self.reads))
        firsts = {one.server: place for place, one in reversed(list(enumerate(answers)))}
        return sorted({*range(0, len(answers), stride), *firsts.values()})


def request_of(
    prompt: Prompt, seed: int, config: RolloutMatchingConfig, reader: PromptReader
) -> Request:
    """One answer to a prompt, drawn as the config says."""
    decoding, end = config.decoding, reader.pieces.end_id
    return Request(
        prompt.ids,
        k=1,
        seed=seed,
        temp=decoding.temperature,
        max_new_tokens=config.max_new_tokens,
        end_ids=(end,),
        id=prompt.asked.where,
        top_p=decoding.top_p,
        top_k=max(decoding.top_k, 0),
        repetition_penalty=config.repetition_penalty,
        messages=prompt.asked.turns,
        images=DataURLs(prompt.asked.images),
        stop=(str(reader.vlm.tokenizer.convert_ids_to_tokens(end)),),
        forbidden=tuple(sorted(reader.pieces.placeholders)),
    )


def before_pictures(drawn: Drawn, pieces: TokenPieces) -> Drawn:
    """Cut in front of the first picture token, which only ms-swift's routes let through."""
    found = (place for place, token in enumerate(drawn.ids) if token in pieces.placeholders)
    cut = next(found, len(drawn.ids))
    return replace(drawn, ids=drawn.ids[:cut], logprobs=drawn.logprobs[:cut])


def witness(
    prompts: Sequence[Prompt],
    config: RolloutMatchingConfig,
    reader: PromptReader,
    tolerance: float,
) -> Witness:
    """Short greedy answers to a few prompts, read again: what a sync is proven by."""
    short = config.model_copy(
        update={
            "decoding": DecodingConfig(),
            "repetition_penalty": 1.0,
            "max_new_tokens": min(_SHORT, config.max_new_tokens),
        }
    )
    reread = Reread(reader, short, tolerance)

    def gap(answers: Sequence[Drawn]) -> float:
        cut = [before_pictures(one, reader.pieces) for one in answers]
        return reread.evidence(prompts, cut).mean

    requests = [request_of(prompt, 0, short, reader) for prompt in prompts]
    return Witness(requests, gap, tolerance)
