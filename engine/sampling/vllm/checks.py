"""What a server's answer must be before anything is trained on it, and a probe of its seeds.

A server that is off by a version, a tokenizer or a bug answers 200 like a sound one. Each answer is
held against its request here; what only the trainer's own forward can contradict is not seen here.
Torch-free; knows no route.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

from engine.sampling.vllm.endpoint import Drawn, Endpoint, FalseReplyError, Lie, Request
from engine.sampling.vllm.line import complete

_FLOOR = -9000.0
"""vLLM writes −9999 for minus infinity."""
_CEILING = 1e-3
"""Rounding may lift certainty above 0."""
_REMEDY = "serve this run's base and its tokenizer, with vLLM 0.11 or newer"
_CHANCE = 40.0
"""Nats: what happens once in e^40 draws (2e17) is no chance."""
_ALIKE = 0.9
"""Share of two texts that must agree; partial characters at a cut are written in several ways."""


@dataclass(frozen=True)
class Reply:
    """What was answered to one request."""

    server: str
    prompt_ids: Sequence[int] | None
    drawn: Sequence[Drawn]
    texts: Sequence[str | None]
    """Of each completion; None where the server tells none."""
    model: str | None = None
    """Who answered, by its own words."""


Found = Iterator[tuple[Lie, str]]


@dataclass(frozen=True)
class ReplyCheck:
    """Holds an answer against its request."""

    vocabulary: int | None = None
    """Token ids are smaller; None where nobody knows."""
    tokenizer: Any = None
    """The run's own, to read ids as the server reads them; None skips that."""

    def __call__(self, reply: Reply, request: Request, *, model: str, logprobs: bool) -> None:
        """`model`: who was asked; `logprobs`: they must be there.

        Raises FalseReplyError for an answer that a run must not be trained on.
        """
        for lie, what in self._lies(reply, request, model, logprobs):
            raise FalseReplyError(lie, f"{reply.server} {what}; {_REMEDY}")

    def _lies(self, reply: Reply, request: Request, model: str, logprobs: bool) -> Found:
        if reply.model not in {None, model}:
            yield Lie.MODEL, f"answered as {reply.model!r}, not as {model!r}"
        if reply.prompt_ids is None:
            yield Lie.NO_PROMPT, "does not say which prompt ids it read"
        elif tuple(reply.prompt_ids) != request.prompt_ids:
            yield Lie.PROMPT, "read other prompt ids than it was sent"
        if len(reply.drawn) != request.k:
            yield Lie.LENGTH, f"gave {len(reply.drawn)} completions for {request.k}"
        for drawn, text in zip(reply.drawn, reply.texts, strict=True):
            yield from self._of_numbers(drawn, logprobs)
            yield from self._of_ids(drawn, request)
            if text is not None and self.tokenizer is not None:
                yield from self._of_text(drawn, text, request)
        if request.temp > 0 and impossible(reply.drawn):
            yield (
                Lie.SAMPLES,
                "answers several samples of one request with the same ids, which their "
                "probability makes impossible",
            )

    def _of_numbers(self, drawn: Drawn, logprobs: bool) -> Found:
        told = len(drawn.logprobs)
        if told != len(drawn.ids) and (told or logprobs):
            yield Lie.LOGPROBS, f"gave {len(drawn.ids)} ids with {told} log-probs"
        if not all(math.isfinite(v) and _FLOOR < v < _CEILING for v in drawn.logprobs):
            yield Lie.LOGPROBS, "gave a log-probability that is none"

    def _of_ids(self, drawn: Drawn, request: Request) -> Found:
        if not drawn.ids:
            yield Lie.NO_IDS, "gave a completion without ids"
            return
        strange = [i for i in drawn.ids if i < 0 or i >= (self.vocabulary or math.inf)]
        if strange:
            known = f"ids below {self.vocabulary}" if self.vocabulary else "no such ids"
            yield Lie.VOCABULARY, f"gave token id {strange[0]}, and the model has {known}"
        ended = drawn.ids[-1] in request.end_ids or len(drawn.ids) == request.max_new_tokens
        if not ended or any(token in request.end_ids for token in drawn.ids[:-1]):
            yield Lie.END, "did not end a completion at its end token"

    def _of_text(self, drawn: Drawn, text: str, request: Request) -> Found:
        """Blanks and partial characters aside: who cuts and joins ids writes those his own way."""
        inner = drawn.ids[:-1] if drawn.ids[-1] in request.end_ids else drawn.ids
        ours = {
            _bare(self.tokenizer.decode(ids, skip_special_tokens=skipped))
            for ids in (drawn.ids, inner)
            for skipped in (False, True)
        }
        theirs = _bare(text)
        if theirs not in ours and all(_agreement(one, theirs) < _ALIKE for one in ours):
            says = self.tokenizer.decode(drawn.ids)
            yield Lie.TEXT, f"gave the text {text[:40]!r} for ids that say {says[:40]!r}"


def impossible(drawn: Sequence[Drawn]) -> bool:
    """Whether draws equal each other that chance does not let come out equal.

    Each repetition of a completion costs its log-probability, less ln(number of draws) for what it
    may repeat. Completions without log-probabilities cost nothing: greedy ones repeat.
    """
    seen: Counter[tuple[int, ...]] = Counter()
    nats = 0.0
    for one in drawn:
        if seen[one.ids] and one.logprobs:
            nats -= min(0.0, sum(one.logprobs) + math.log(len(drawn)))
        seen[one.ids] += 1
    return nats > _CHANCE


@dataclass(frozen=True)
class SeedProbe:
    """At bring-up: the same seed draws the same ids twice, another seed draws others.

    Where a policy is so sure of its answers that seeds cannot show, nothing is said.
    """

    requests: Sequence[Request]
    """A few of the run's own; drawn short, at temperature 1."""
    tokens: int = 16

    def __call__(self, endpoint: Endpoint, model: str) -> None:
        """Raises FalseReplyError, naming what the server does with seeds."""
        first, same, other = (self._draw(endpoint, model, seed) for seed in (1, 1, 2_000_003))
        equal = sum(a.ids == b.ids for a, b in zip(first, same, strict=True))
        # Batches round differently, and turn a rare token.
        if equal * 2 < len(first):
            raise self._lie(endpoint, "draws other ids with the same seed")
        if all(a.ids == b.ids for a, b in zip(first, other, strict=True)) and (
            not endpoint.tells_logprobs or sum(sum(one.logprobs) for one in other) < -_CHANCE
        ):
            raise self._lie(endpoint, "draws the same ids with every seed")

    def _draw(self, endpoint: Endpoint, model: str, base: int) -> list[Drawn]:
        # Without log-probabilities nobody can tell sure from deaf, so it is asked hotter.
        temp = 1.0 if endpoint.tells_logprobs else 2.0
        asked = [
            replace(
                one,
                k=1,
                seed=base + place,
                temp=temp,
                max_new_tokens=min(self.tokens, one.max_new_tokens),
                top=0,
            )
            for place, one in enumerate(self.requests)
        ]
        answers = complete(endpoint, model, asked, at_once=len(asked))
        return [drawn for [drawn] in answers]

    def _lie(self, endpoint: Endpoint, what: str) -> FalseReplyError:
        return FalseReplyError(
            Lie.SEEDS,
            f"{endpoint.url} {what}; a run on it can be neither repeated nor believed: serve with "
            "a vLLM that takes a seed in each request",
        )


def _bare(text: str) -> str:
    return "".join(text.replace("\N{REPLACEMENT CHARACTER}", "").split())


def _agreement(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).ratio()
