"""The rollout routes of ms-swift: `/health/`, `/get_world_size/` and `/infer/`.

Conversations and pictures go in, token ids come out; the ids of the prompt come back with them and
must be those that the run made itself. Several requests go in one call, under one seed.
Log-probabilities are those of the distribution that a token was drawn from (ms-swift 4.6 asks vLLM
for `processed_logprobs`), in which nothing is forbidden; a server may tell none. Torch-free; knows
no policy.

ms-swift 4.6 adds a request's index to the seed of its call (sync engine) or gives all the same
(async engine), so a prompt never stands twice in a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx

from engine.sampling.vllm import line
from engine.sampling.vllm.checks import Reply, ReplyCheck
from engine.sampling.vllm.endpoint import (
    Alive,
    Call,
    Drawn,
    FalseReplyError,
    Lie,
    Limits,
    Placed,
    RefusedError,
    Request,
    ServerError,
)
from engine.sampling.vllm.wire import PROBE_S, Wire, read_json

SEED_MASK = 0x7FFFFFFF


class InferApi:
    """The server below `base_url`, which may have a path of its own."""

    tells_logprobs = False
    one_at_a_time = True

    def __init__(
        self,
        base_url: str,
        *,
        batch_size: int,
        limits: Limits | None = None,
        check: ReplyCheck | None = None,
    ) -> None:
        """`batch_size`: most requests in one call, the run's `decode_batch_size`."""
        self.url = base_url.rstrip("/")
        self.limits = limits or Limits()
        self._batch_size = batch_size
        self._check = check or ReplyCheck()
        self._wire = Wire(self.url, self.limits)

    def answers(self) -> bool:
        """Whether a server is there and healthy; False when nothing listens."""
        return self._wire.answers(self._health, "look at that server, or take it off the list")

    def healthy(self) -> bool:
        """Whether it answers as healthy within a few seconds; nothing is raised."""
        return self._wire.healthy(self._health)

    def world_size(self) -> int:
        """Processes of its engine that a weight sync has to reach."""
        found = self._wire.get(f"{self.url}/get_world_size/").get("world_size")
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            raise ServerError(
                f"{self.url}/get_world_size/ names no world_size; is it an ms-swift rollout server?"
            )
        return found

    def complete(
        self,
        model: str,
        requests: Sequence[Request],
        *,
        at_once: int = 1,
        alive: Alive = lambda: None,
    ) -> list[list[Drawn]]:
        """The completions of each request, in their order; one call is in flight.

        `model` is not said: the server has one. Raises Aborted when asked to stop.
        """
        return line.complete(self, model, requests, at_once=at_once, alive=alive)

    # --- as an endpoint ---

    def calls(self, requests: Sequence[Placed]) -> list[Call]:
        """Up to `batch_size` neighbours of one decoding, no prompt twice under a sampling seed."""
        most = max((request.k for _, request in requests), default=0)
        calls: list[list[Placed]] = []
        # A sample of every request before the next ones: so neighbours have different prompts.
        for sample in range(most):
            for place, request in requests:
                if sample < request.k:
                    one = (place, replace(request, k=1, seed=request.seed + sample))
                    if not calls or not self._joins(one[1], [r for _, r in calls[-1]]):
                        calls.append([])
                    calls[-1].append(one)
        return list(calls)

    def client(self, connections: int) -> httpx.AsyncClient:
        """Fresh connections."""
        return self._wire.clients(connections)

    async def probe(self, client: httpx.AsyncClient) -> None:
        """Ask whether it is healthy. Raises httpx.HTTPError."""
        patience = min(PROBE_S, self.limits.timeout_s)
        (await client.get(self._health, timeout=patience)).raise_for_status()

    async def send(
        self,
        client: httpx.AsyncClient,
        model: str,
        requests: Sequence[Request],
    ) -> list[list[Drawn]]:
        """One call under the seed of its first request."""
        body = {
            "infer_requests": [self._asked(request) for request in requests],
            "request_config": _config(requests[0]),
        }
        reply = await self._wire.post(client, f"{self.url}/infer/", body)
        told = read_json(self.url, reply)
        if not isinstance(told, list) or len(told) != len(requests):
            given = len(told) if isinstance(told, list) else "no list of"
            raise FalseReplyError(
                Lie.LENGTH, f"{self.url} gave {given} answers for {len(requests)} requests"
            )
        return [
            self._read(one, request, model) for one, request in zip(told, requests, strict=True)
        ]

    # --- inside ---

    @property
    def _health(self) -> str:
        return f"{self.url}/health/"

    def _joins(self, request: Request, call: Sequence[Request]) -> bool:
        if len(call) == self._batch_size or _shape(request) != _shape(call[0]):
            return False
        twice = any(_prompt(request) == _prompt(one) for one in call)
        return request.temp == 0 or not twice

    def _asked(self, request: Request) -> Mapping[str, Any]:
        if not request.messages:
            raise RefusedError(
                f"{self.url} takes conversations, and request {request.id!r} has token ids alone; "
                "serve it with OpenAI-style routes"
            )
        return {"messages": list(request.messages), "images": list(request.images)}

    def _read(self, told: Any, request: Request, model: str) -> list[Drawn]:
        try:
            response = told.get("response", told)
            choice = response["choices"][0]
            logprobs = (choice.get("logprobs") or {}).get("content") or ()
            drawn = Drawn(
                ids=tuple(int(token) for token in choice["token_ids"]),
                logprobs=tuple(float(one["logprob"]) for one in logprobs),
                server=self.url,
                forbids=False,
            )
            prompt_ids = response.get("prompt_token_ids")
            reply = Reply(self.url, prompt_ids, [drawn], [choice["message"]["content"]])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise FalseReplyError(
                Lie.NO_IDS,
                f"{self.url} gives no token ids ({type(error).__name__}: {error}); serve with "
                "ms-swift 3.10 or newer",
            ) from error
        self._check(reply, request, model=model, logprobs=False)
        return [drawn]


def _config(request: Request) -> Mapping[str, Any]:
    """ms-swift's `RequestConfig`: nothing of the draw is left to the server."""
    decoding = dict(request.decoding)
    if not decoding["min_p"]:  # a field that old servers do not have
        del decoding["min_p"]
    return {
        **decoding,
        "top_k": request.top_k or -1,
        "stop": list(request.stop),
        "return_details": True,
        "logprobs": True,
        "seed": request.seed & SEED_MASK,
    }


def _shape(request: Request) -> tuple[Any, ...]:
    return (*request.decoding.values(), request.stop)


def _prompt(request: Request) -> tuple[Any, ...]:
    return (request.prompt_ids, request.images)
