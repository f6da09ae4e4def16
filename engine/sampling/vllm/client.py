"""The routes of a vLLM server that a run uses, and what goes wrong with them.

`/health`, `/version`, `/v1/models`, `/v1/completions` with token ids in and out,
`/v1/chat/completions` for pictures, and `/v1/load_lora_adapter`. Torch-free; knows no policy and
starts no process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import httpx

from engine.contract.serving import Serving
from engine.sampling.vllm import chat, line
from engine.sampling.vllm.checks import Reply, ReplyCheck
from engine.sampling.vllm.endpoint import (
    Alive,
    Call,
    Drawn,
    FalseReplyError,
    Lie,
    Limits,
    Placed,
    Request,
    RouteMissingError,
    ServerError,
)
from engine.sampling.vllm.wire import PROBE_S, Wire, no_route, read_json

_NEVER = -100.0
"""The lowest bias of a logit that the routes take."""


class ServedModel(NamedTuple):
    """One entry of `/v1/models`."""

    name: str
    root: str
    """Folder or hub id that it was loaded from."""
    parent: str | None
    """The base that an adapter belongs to; None for a base."""
    window: int | None
    """Most tokens of a prompt with its completion, of a base."""


class ServerApi:
    """The server at `serving.url`. Every call raises ServerError with the address in it."""

    tells_logprobs = True
    one_at_a_time = False

    def __init__(
        self,
        serving: Serving,
        *,
        limits: Limits | None = None,
        check: ReplyCheck | None = None,
    ) -> None:
        """`limits`: those of the lane's settings unless told."""
        self.url = serving.url
        self.limits = limits or Limits(serving.timeout_s, serving.timeout_s)
        self._root = serving.root
        self._check = check or ReplyCheck()
        self._wire = Wire(self.url, self.limits, serving.socket)

    def answers(self) -> bool:
        """Whether a server is there and healthy; False when nothing listens.

        Raises ServerError when something listens that is no healthy server: its port is taken.
        """
        return self._wire.answers(
            self._health, "stop what listens there, or set NIGHTLANE_VLLM_URL to a free port"
        )

    def healthy(self) -> bool:
        """Whether it answers as healthy within a few seconds; nothing is raised."""
        return self._wire.healthy(self._health)

    def version(self) -> str:
        """Of the program, as it tells it."""
        found = self._wire.get(f"{self._root}/version").get("version")
        if not isinstance(found, str):
            raise ServerError(f"{self._root}/version names no version; is it a vLLM server?")
        return found

    def models(self) -> Sequence[ServedModel]:
        """What is served: the base, then its adapters."""
        entries = self._wire.get(f"{self.url}/models").get("data")
        if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
            raise ServerError(f"{self.url}/models lists no models; is it a vLLM server?")
        return [
            ServedModel(
                name=str(entry.get("id")),
                root=str(entry.get("root") or entry.get("id")),
                parent=entry.get("parent"),
                window=entry.get("max_model_len"),
            )
            for entry in entries
        ]

    def load_adapter(self, name: str, path: str) -> None:
        """Serve the adapter in `path` under `name` from now on. A 200 proves nothing yet.

        Raises RouteMissingError when the server was started without this route.
        """
        body = {"lora_name": name, "lora_path": path, "load_inplace": True}
        reply = self._wire.send(f"{self.url}/load_lora_adapter", body)
        if no_route(reply):
            raise RouteMissingError(f"{self.url} takes no adapter while it runs")
        if reply.status_code != httpx.codes.OK:
            raise self._wire.refused("load_lora_adapter", reply)

    def sleep(self, level: int) -> None:
        """Give memory back: 1 keeps the weights on the CPU, 2 keeps none. CUDA alone."""
        self._must(f"sleep?level={level}")

    def wake_up(self) -> None:
        """Take it again; after level 2 the weights are nobody's."""
        self._must("wake_up")

    def complete(
        self,
        model: str,
        requests: Sequence[Request],
        *,
        at_once: int,
        alive: Alive = lambda: None,
    ) -> list[list[Drawn]]:
        """The completions of each request, in their order; at most `at_once` are in flight.

        `alive` raises when the serving process is dead. Raises Aborted when asked to stop.
        """
        return line.complete(self, model, requests, at_once=at_once, alive=alive)

    # --- as an endpoint ---

    def calls(self, requests: Sequence[Placed]) -> list[Call]:
        """One a request."""
        return [[one] for one in requests]

    def client(self, connections: int) -> httpx.AsyncClient:
        """Fresh connections."""
        return self._wire.clients(connections)

    async def probe(self, client: httpx.AsyncClient) -> None:
        """Ask whether it is healthy. Raises httpx.HTTPError."""
        patience = min(PROBE_S, self.limits.timeout_s)
        (await client.get(self._health, timeout=patience)).raise_for_status()

    async def send(
        self, client: httpx.AsyncClient, model: str, requests: Sequence[Request]
    ) -> list[list[Drawn]]:
        """One request's completions, looked at before they are believed."""
        [request] = requests
        body = {
            # Said although nothing may shape the draw: a server fills in what is left out, with
            # what its model folder suggests.
            **request.decoding,
            "model": model,
            "n": request.k,
            "seed": request.seed,
            # The run's own end tokens end a completion, and none of the server's.
            "ignore_eos": True,
            "stop_token_ids": list(request.end_ids),
            "skip_special_tokens": False,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "logit_bias": {str(token): _NEVER for token in request.forbidden} or None,
        }
        if request.images:
            address, own = f"{self.url}/chat/completions", chat.asked(request)
        else:
            address = f"{self.url}/completions"
            own = {"prompt": list(request.prompt_ids), "logprobs": request.top}
        reply = await self._wire.post(client, address, {**body, **own})
        return [self._read(read_json(self.url, reply), request, model)]

    # --- inside ---

    @property
    def _health(self) -> str:
        return f"{self._root}/health"

    def _must(self, route: str) -> None:
        reply = self._wire.send(f"{self._root}/{route}", {})
        if reply.status_code != httpx.codes.OK:
            raise self._wire.refused(route, reply)

    def _read(self, told: Any, request: Request, model: str) -> list[Drawn]:
        """Raises FalseReplyError for an answer that a run must not be trained on."""
        try:
            if request.images:
                told = chat.told(told)
            choices = sorted(told["choices"], key=lambda choice: int(choice["index"]))
            drawn = [_drawn(choice, request.top, self.url) for choice in choices]
            read = [choice.get("prompt_token_ids") for choice in choices]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FalseReplyError(
                Lie.NO_IDS,
                f"{self.url} gives no token ids with their log-probabilities "
                f"({type(error).__name__}: {error}); serve with vLLM 0.11 or newer",
            ) from error
        other = (ids for ids in read if ids is None or tuple(ids) != request.prompt_ids)
        reply = Reply(
            self.url,
            prompt_ids=next(other, request.prompt_ids),
            drawn=drawn,
            texts=[choice.get("text") for choice in choices],
            model=told.get("model"),
        )
        self._check(reply, request, model=model, logprobs=True)
        return drawn


def _drawn(choice: Mapping[str, Any], top: int, server: str) -> Drawn:
    told = choice["logprobs"]
    return Drawn(
        ids=tuple(int(token) for token in choice["token_ids"]),
        logprobs=tuple(float(value) for value in told["token_logprobs"]),
        top=tuple(
            {int(name.removeprefix("token_id:")): float(value) for name, value in likely.items()}
            for likely in told["top_logprobs"]
        )
        if top
        else (),
        server=server,
    )
