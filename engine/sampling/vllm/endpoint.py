"""What every rollout server looks like to a run: requests, answers, and how it fails.

    ServerApi   OpenAI-style routes, one call a request          (client.py)
    InferApi    ms-swift's `/infer/`, several requests a call    (infer.py)

Torch-free; knows no route, no policy and no process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

import httpx

from engine.contract.ends import FALSE_REPLY, SERVER_FAILED, SERVER_LOST
from engine.contract.errors import NightlaneError


class ServerError(NightlaneError):
    """The serving lane does not do what the run needs of it."""

    cause = SERVER_FAILED
    again = True
    """Whether the same call is worth another try on a fresh connection."""


class RouteMissingError(ServerError):
    """The server knows no such route: it is another program, or the route is switched off."""

    again = False


class RefusedError(ServerError):
    """The server says that the request itself is wrong: a prompt that is too long, a bad key."""

    again = False


class Lie(StrEnum):
    """What is wrong with an answer."""

    LENGTH = "wrong length"
    HALF = "half a reply"
    NO_IDS = "no token ids"
    NO_PROMPT = "prompt ids not returned"
    PROMPT = "ids of another prompt"
    MODEL = "another model"
    VOCABULARY = "ids out of the vocabulary"
    TEXT = "text that is not its ids"
    LOGPROBS = "log-probabilities that are none"
    END = "an end that was not asked for"
    SAMPLES = "samples alike"
    SEEDS = "seeds ignored"


class FalseReplyError(ServerError):
    """An answer that cannot be true; `lie` names it."""

    cause = FALSE_REPLY

    def __init__(self, lie: Lie, message: str) -> None:
        self.lie = lie
        super().__init__(message)


class ServerLostError(ServerError):
    """Nobody answers there any more."""

    retryable = True
    cause = SERVER_LOST


@dataclass(frozen=True)
class Request:
    """k completions of one prompt, with one seed: sample i is drawn with seed + i."""

    prompt_ids: tuple[int, ...]
    k: int
    seed: int
    """On routes that take one seed a call, that of the call's first request counts: so seeds are a
    base plus the request's place in the step."""
    temp: float
    max_new_tokens: int
    end_ids: tuple[int, ...]
    """Each of them ends a completion, and stays its last token."""
    top: int = 0
    """How many of the likeliest tokens are told beside the drawn one."""
    id: str = ""
    """Whose it is, for people."""
    top_p: float = 1.0
    top_k: int = 0
    """0 is off."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    messages: tuple[Mapping[str, Any], ...] = ()
    """The same prompt as a conversation, for routes that take no ids; `{"type": "image"}` is a
    picture's place."""
    images: Sequence[str] = ()
    """Its pictures in their order, as `data:` URLs; may read each when it is asked for."""
    stop: tuple[str, ...] = ()
    """The end ids as texts, for routes that take no ids."""
    forbidden: tuple[int, ...] = ()
    """Never drawn, where the routes can be told so: vLLM's, not ms-swift's."""

    @property
    def decoding(self) -> Mapping[str, Any]:
        """How its tokens are chosen, in vLLM's words."""
        return {
            "temperature": self.temp,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
            "max_tokens": self.max_new_tokens,
        }


@dataclass(frozen=True)
class Drawn:
    """One completion."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of each id, in the distribution that it was drawn from; empty where the routes tell none."""
    top: tuple[Mapping[int, float], ...] = ()
    """By position, the likeliest tokens with their log-probabilities; empty unless asked for."""
    server: str = ""
    """Address of who drew it."""
    forbids: bool = True
    """What the request forbids was left out of the draw."""


@dataclass(frozen=True)
class Limits:
    """Seconds that a server has."""

    timeout_s: float = 240.0
    """To be reachable, to answer a health probe again, and to end an answer that it began."""
    infer_timeout_s: float | None = None
    """For a call, from sending to the end of its answer; None, or 0 and less: without limit."""

    @property
    def read_s(self) -> float | None:
        """`infer_timeout_s` with one word for no limit."""
        return self.infer_timeout_s if self.infer_timeout_s and self.infer_timeout_s > 0 else None


Placed = tuple[int, Request]
"""A request, or a part of its samples, with the place of its completions among the answers."""
Call = Sequence[Placed]
"""What goes out together."""


class Endpoint(Protocol):
    """One rollout server. Every method raises ServerError with the address in it."""

    url: str
    limits: Limits
    tells_logprobs: bool
    one_at_a_time: bool
    """Its calls go out one after the other; else all that `at_once` allows are in flight."""

    def answers(self) -> bool:
        """Whether it is there and healthy; False when nothing listens."""
        ...

    def calls(self, requests: Sequence[Placed]) -> list[Call]:
        """How the requests go out; a request's samples stay in their order."""
        ...

    def client(self, connections: int) -> httpx.AsyncClient:
        """Fresh connections."""
        ...

    async def probe(self, client: httpx.AsyncClient) -> None:
        """Ask whether it is healthy. Raises httpx.HTTPError."""
        ...

    async def send(
        self, client: httpx.AsyncClient, model: str, requests: Sequence[Request]
    ) -> list[list[Drawn]]:
        """One call: the completions of each request, looked at before they are believed."""
        ...


def halved(requests: Sequence[Request]) -> tuple[list[Request], list[Request]] | None:
    """A call as two: of half the requests, or of half the samples of the only one.

    Samples keep their seeds. None where there is nothing to halve.

    >>> first, second = halved([Request((1,), 5, 40, 1.0, 8, (2,))])
    >>> [(one.k, one.seed) for one in first + second]
    [(2, 40), (3, 42)]
    """
    if len(requests) > 1:
        middle = len(requests) // 2
        return list(requests[:middle]), list(requests[middle:])
    [request] = requests
    if request.k == 1:
        return None
    k = request.k // 2
    rest = replace(request, k=request.k - k, seed=request.seed + k)
    return [replace(request, k=k)], [rest]


Alive = Callable[[], None]
"""Raises ServerError when the serving process is dead."""
