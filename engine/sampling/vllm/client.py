"""The routes of a vLLM server that a run uses, and what goes wrong with them.

`/health`, `/version`, `/v1/models`, `/v1/completions` with token ids in and out, and
`/v1/load_lora_adapter`. Never through a proxy: the server is this machine's own. Torch-free; knows
no policy and starts no process.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx

from engine.contract.errors import NightlaneError
from engine.contract.serving import Serving
from engine.run.stop import check_abort, sign_of_life

PROBE_S = 5.0
"""Seconds that a server has to say that it lives."""
CONNECT_S = 30.0
"""Seconds for a connection: hundreds are opened at once, on a machine that is busy training."""
_CONNECT_RETRIES = 2
_POLL_S = 0.05
_PROBE_EVERY_S = 2.0
_SHOWN = 300


class ServerError(NightlaneError):
    """The serving lane does not do what the run needs of it."""

    retryable = True


class RouteMissingError(ServerError):
    """The server knows no such route: it is another program, or the route is switched off."""


class ServedModel(NamedTuple):
    """One entry of `/v1/models`."""

    name: str
    root: str
    """Folder or hub id that it was loaded from."""
    parent: str | None
    """The base that an adapter belongs to; None for a base."""
    window: int | None
    """Most tokens of a prompt with its completion, of a base."""


@dataclass(frozen=True)
class Request:
    """k completions of one prompt, with one seed: sample i is drawn with seed + i."""

    prompt_ids: tuple[int, ...]
    k: int
    seed: int
    temp: float
    max_new_tokens: int
    end_ids: tuple[int, ...]
    """Each of them ends a completion, and stays its last token."""
    top: int = 0
    """How many of the likeliest tokens are told beside the drawn one."""


@dataclass(frozen=True)
class Drawn:
    """One completion."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of each id, in the distribution that it was drawn from."""
    top: tuple[Mapping[int, float], ...]
    """By position, the likeliest tokens with their log-probabilities; empty unless asked for."""


class ServerApi:
    """The server at `serving.url`. Every call raises ServerError with the address in it."""

    def __init__(self, serving: Serving) -> None:
        self.url = serving.url
        self._root = serving.root
        self._timeout_s = serving.timeout_s
        # One for all clients: it reads the certificates of half the world.
        self._tls = httpx.create_ssl_context(trust_env=False)
        self._limits = httpx.Timeout(serving.timeout_s, connect=min(CONNECT_S, serving.timeout_s))

    def answers(self) -> bool:
        """Whether a server is there and healthy; False when nothing listens.

        Raises ServerError when something listens that is no healthy server: its port is taken.
        """
        try:
            reply = self._settled_health()
        except httpx.ConnectError:
            return False
        except httpx.HTTPError as error:
            raise ServerError(
                f"{self._root} accepts connections and does not answer ({_reason(error)}); stop "
                "what listens there, or set NIGHTLANE_VLLM_URL to a free port"
            ) from error
        if reply.status_code != httpx.codes.OK:
            raise ServerError(
                f"{self._root}/health answers with status {reply.status_code}, not as a healthy "
                "vLLM does; stop what listens there, or set NIGHTLANE_VLLM_URL to a free port"
            )
        return True

    def healthy(self) -> bool:
        """Whether it answers as healthy within a few seconds; nothing is raised."""
        try:
            reply = self._health()
        except httpx.HTTPError:
            return False
        return reply.status_code == httpx.codes.OK

    def version(self) -> str:
        """Of the program, as it tells it."""
        found = self._get(f"{self._root}/version").get("version")
        if not isinstance(found, str):
            raise ServerError(f"{self._root}/version names no version; is it a vLLM server?")
        return found

    def models(self) -> Sequence[ServedModel]:
        """What is served: the base, then its adapters."""
        entries = self._get(f"{self.url}/models").get("data")
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
        try:
            with self._http() as http:
                reply = http.post(f"{self.url}/load_lora_adapter", json=body, timeout=self._limits)
        except httpx.HTTPError as error:
            raise self._failed("load_lora_adapter", error) from error
        if _words(reply) in _NO_ROUTE:
            raise RouteMissingError(f"{self.url} takes no adapter while it runs")
        if reply.status_code != httpx.codes.OK:
            raise self._refused("load_lora_adapter", reply)

    def complete(
        self,
        model: str,
        requests: Sequence[Request],
        *,
        at_once: int,
        alive: Callable[[], None] = lambda: None,
    ) -> list[list[Drawn]]:
        """The completions of each request, in their order; at most `at_once` are in flight.

        `alive` raises when the serving process is dead. Raises Aborted when asked to stop.
        """
        return asyncio.run(self._complete(model, requests, at_once, alive))

    # --- inside ---

    async def _complete(
        self, model: str, requests: Sequence[Request], at_once: int, alive: Callable[[], None]
    ) -> list[list[Drawn]]:
        gate = asyncio.Semaphore(at_once)
        transport = httpx.AsyncHTTPTransport(
            verify=self._tls,
            retries=_CONNECT_RETRIES,
            trust_env=False,
            limits=httpx.Limits(max_connections=at_once + 1, max_keepalive_connections=at_once + 1),
        )
        async with httpx.AsyncClient(
            trust_env=False, timeout=self._limits, transport=transport
        ) as client:

            async def one(request: Request) -> list[Drawn]:
                async with gate:
                    return await self._one(client, model, request)

            tasks = [asyncio.ensure_future(one(request)) for request in requests]
            try:
                await self._watch(client, tasks, alive)
                return [task.result() for task in tasks]
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(
        self,
        client: httpx.AsyncClient,
        tasks: Sequence[asyncio.Future[list[Drawn]]],
        alive: Callable[[], None],
    ) -> None:
        """Until all are done or one failed; stops for an abort and for a server that is gone."""
        loop = asyncio.get_running_loop()
        probe_at = loop.time() + _PROBE_EVERY_S
        waiting: set[asyncio.Future[list[Drawn]]] = set(tasks)
        while waiting:
            check_abort(working=False)
            alive()
            done, waiting = await asyncio.wait(
                waiting, timeout=_POLL_S, return_when=asyncio.FIRST_EXCEPTION
            )
            for task in done:
                task.result()
            if waiting and loop.time() > probe_at:
                await self._still_there(client)
                probe_at = loop.time() + _PROBE_EVERY_S

    async def _still_there(self, client: httpx.AsyncClient) -> None:
        """A connection that hangs says nothing of a server that is gone; this does."""
        try:
            await client.get(f"{self._root}/health", timeout=PROBE_S)
        except httpx.ConnectError as error:
            raise self._failed("health", error) from error
        except httpx.HTTPError:
            return  # it is busy: the request's own limit decides
        sign_of_life()

    async def _one(self, client: httpx.AsyncClient, model: str, request: Request) -> list[Drawn]:
        body = {
            "model": model,
            "prompt": list(request.prompt_ids),
            "n": request.k,
            "seed": request.seed,
            "temperature": request.temp,
            # Said although nothing shapes the draw: a server fills in what is left out, with what
            # its model folder suggests.
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "max_tokens": request.max_new_tokens,
            "logprobs": request.top,
            # The run's own end tokens end a completion, and none of the server's.
            "ignore_eos": True,
            "stop_token_ids": list(request.end_ids),
            "skip_special_tokens": False,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        try:
            reply = await client.post(f"{self.url}/completions", json=body)
        except httpx.HTTPError as error:
            raise self._failed("completions", error) from error
        if reply.status_code != httpx.codes.OK:
            raise self._refused("completions", reply)
        return self._read(reply, request)

    def _read(self, reply: httpx.Response, request: Request) -> list[Drawn]:
        """Raises ServerError for an answer that a run must not be trained on."""
        try:
            choices = sorted(_json(reply)["choices"], key=lambda choice: int(choice["index"]))
            for choice in choices:
                told = choice.get("prompt_token_ids")
                if told is not None and tuple(told) != request.prompt_ids:
                    raise self._odd("read other prompt ids than it was sent")
            drawn = [_drawn(choice, request.top) for choice in choices]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._odd(
                f"gives no token ids with their log-probabilities ({type(error).__name__}: {error})"
            ) from error
        if len(drawn) != request.k:
            raise self._odd(f"gave {len(drawn)} completions for {request.k}")
        for one in drawn:
            if not one.ids or len(one.ids) != len(one.logprobs):
                raise self._odd(f"gave {len(one.ids)} ids with {len(one.logprobs)} log-probs")
            if not all(math.isfinite(value) and value > _FLOOR for value in one.logprobs):
                raise self._odd("gave a log-probability that is none")
            ended = one.ids[-1] in request.end_ids or len(one.ids) == request.max_new_tokens
            if not ended or any(token in request.end_ids for token in one.ids[:-1]):
                raise self._odd("did not end a completion at its end token")
        return drawn

    def _get(self, address: str) -> dict[str, Any]:
        try:
            with self._http() as http:
                reply = http.get(address, timeout=PROBE_S)
        except httpx.HTTPError as error:
            raise self._failed(address.rpartition("/")[2], error) from error
        if reply.status_code != httpx.codes.OK:
            raise self._refused(address.rpartition("/")[2], reply)
        return _json(reply)

    def _settled_health(self) -> httpx.Response:
        """A server that is just being ended takes connections and drops them; not for long."""
        deadline = time.monotonic() + PROBE_S
        while True:
            try:
                return self._health()
            except (httpx.ReadError, httpx.RemoteProtocolError):
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)

    def _health(self) -> httpx.Response:
        with self._http() as http:
            return http.get(f"{self._root}/health", timeout=PROBE_S)

    def _http(self) -> httpx.Client:
        return httpx.Client(verify=self._tls, trust_env=False)

    def _failed(self, route: str, error: httpx.HTTPError) -> ServerError:
        if isinstance(error, httpx.ReadTimeout):
            return ServerError(
                f"{self.url}: no answer to {route} within {self._timeout_s:g} s; the server hangs, "
                "or NIGHTLANE_SERVE_TIMEOUT_S is too short for it"
            )
        return ServerError(
            f"{self.url}: {route} failed ({_reason(error)}); the server is gone or was restarted"
        )

    def _refused(self, route: str, reply: httpx.Response) -> ServerError:
        if _words(reply) in _NO_ROUTE:
            return ServerError(
                f"{self.url} has no route {route}; is it a vLLM that generates text, and does the "
                "base's config.json name its architecture?"
            )
        return ServerError(
            f"{self.url}: {route} was refused with status {reply.status_code}: {_words(reply)}; "
            "look at the serving log"
        )

    def _odd(self, what: str) -> ServerError:
        return ServerError(f"{self.url} {what}; serve with vLLM 0.11 or newer")


_NO_ROUTE = frozenset({"Not Found", "Method Not Allowed"})
"""The framework's own answers; a route that is there says more about what it did not find."""
_FLOOR = -9000.0
"""vLLM writes −9999 for minus infinity."""


def _drawn(choice: Mapping[str, Any], top: int) -> Drawn:
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
    )


def _words(reply: httpx.Response) -> str:
    """What a refusal says, in one line."""
    said = _json(reply)
    error = said.get("error")
    inner = error if isinstance(error, dict) else said
    words = str(inner.get("message") or inner.get("detail") or reply.text).strip()
    return next(iter(words.splitlines()), "nothing")[:_SHOWN]


def _json(reply: httpx.Response) -> dict[str, Any]:
    """The answer's object; empty when it holds none."""
    try:
        found = reply.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _reason(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__
