"""HTTP as every rollout server is spoken to: its limits, its key, and how it goes wrong.

Never through a proxy: variables of the environment capture this machine's own addresses.
Torch-free; knows no route.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from engine.sampling.vllm.endpoint import (
    FalseReplyError,
    Lie,
    Limits,
    RefusedError,
    ServerError,
    ServerLostError,
)

KEY_ENV = "NIGHTLANE_SERVE_KEY"
"""Variable with the key that the servers ask for, if they do."""
PROBE_S = 5.0
"""Seconds that a server has to say that it lives."""
CONNECT_S = 10.0
"""Most seconds for a connection."""
_CONNECT_RETRIES = 2
_POLL_S = 0.05
_SHOWN = 300
_NO_ROUTE = frozenset({"Not Found", "Method Not Allowed"})
"""The framework's own answers; a route that is there says more about what it did not find."""
_BUSY = frozenset({408, 425, 429})


class Wire:
    """Connections to one server at `url`. What fails is a ServerError with the address in it."""

    def __init__(self, url: str, limits: Limits, path: Path | None = None) -> None:
        """`path`: of a Unix socket that is spoken to instead of the URL's host and port."""
        self.url = url
        self._socket = None if path is None else str(path)
        self.limits = limits
        key = os.environ.get(KEY_ENV)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        # One for all clients: it reads the certificates of half the world.
        secure = url.startswith("https:")
        self._tls = httpx.create_ssl_context(trust_env=False) if secure else False
        self._connect_s = min(CONNECT_S, limits.read_s or CONNECT_S)

    def clients(self, connections: int) -> httpx.AsyncClient:
        """Fresh connections, at most so many."""
        transport = httpx.AsyncHTTPTransport(
            verify=self._tls,
            retries=_CONNECT_RETRIES,
            trust_env=False,
            uds=self._socket,
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        )
        # How long an answer may take, `post` watches: a limit on each read lets bytes drip.
        timeout = httpx.Timeout(None, connect=self._connect_s)
        return httpx.AsyncClient(
            trust_env=False, timeout=timeout, transport=transport, headers=self._headers
        )

    async def post(
        self, client: httpx.AsyncClient, address: str, body: Mapping[str, Any]
    ) -> httpx.Response:
        """The whole answer. Raises ServerError for a failure, RefusedError for a refusal."""
        route, begun = _route(address), False
        try:
            async with (
                asyncio.timeout(self.limits.read_s),
                client.stream("POST", address, json=body) as reply,
            ):
                begun = True
                async with asyncio.timeout(self.limits.timeout_s):
                    await reply.aread()
        except TimeoutError as error:
            raise self._late(route, begun=begun) from error
        except httpx.HTTPError as error:
            raise self.failed(route, error) from error
        if reply.status_code != httpx.codes.OK:
            raise self.refused(route, reply)
        return reply

    def send(self, address: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        """Whatever it answers to a question beside the rollouts: a POST where there is a body."""
        patience = PROBE_S if body is None else self.limits.timeout_s
        timeout = httpx.Timeout(patience, connect=min(CONNECT_S, patience))
        method = "GET" if body is None else "POST"
        try:
            with self._client() as http:
                return http.request(method, address, json=body, timeout=timeout)
        except httpx.ReadTimeout as error:
            raise self._hangs(f"no answer to {_route(address)}", patience) from error
        except httpx.HTTPError as error:
            raise self.failed(_route(address), error) from error

    def get(self, address: str) -> dict[str, Any]:
        """The object that it answers."""
        reply = self.send(address)
        if reply.status_code != httpx.codes.OK:
            raise self.refused(_route(address), reply)
        return as_object(reply)

    def answers(self, health: str, remedy: str) -> bool:
        """Whether a server is there and healthy; False when nothing listens.

        Raises ServerError when something listens that is no healthy server: its port is taken.
        """
        try:
            reply = self._settled(health)
        except httpx.ConnectError:
            return False
        except httpx.HTTPError as error:
            raise ServerError(
                f"{self.url} accepts connections and does not answer ({_reason(error)}); {remedy}"
            ) from error
        if reply.status_code != httpx.codes.OK:
            raise ServerError(
                f"{health} answers with status {reply.status_code}, not as a healthy vLLM does; "
                f"{remedy}"
            )
        return True

    def healthy(self, health: str) -> bool:
        """Whether it answers as healthy within a few seconds; nothing is raised."""
        try:
            return self._health(health).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def failed(self, route: str, error: httpx.HTTPError) -> ServerError:
        gone = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
        kind = ServerLostError if gone else ServerError
        return kind(
            f"{self.url}: {route} failed ({_reason(error)}); the server is gone or was restarted"
        )

    def refused(self, route: str, reply: httpx.Response) -> ServerError:
        if no_route(reply):
            return RefusedError(
                f"{self.url} has no route {route}; is it a vLLM that generates text, and does the "
                "base's config.json name its architecture?"
            )
        ours = reply.is_client_error and reply.status_code not in _BUSY
        kind = RefusedError if ours else ServerError
        locked = reply.status_code in {401, 403}
        remedy = f"set {KEY_ENV} to its key" if locked else "look at the serving log"
        return kind(
            f"{self.url}: {route} was refused with status {reply.status_code}: {words(reply)}; "
            f"{remedy}"
        )

    # --- inside ---

    def _late(self, route: str, *, begun: bool) -> ServerError:
        whole, end = self.limits.read_s or math.inf, self.limits.timeout_s
        if begun:
            return self._hangs(f"an answer to {route} that began and did not end", min(whole, end))
        return self._hangs(f"no answer to {route}", whole)

    def _hangs(self, what: str, seconds: float) -> ServerError:
        return ServerError(
            f"{self.url}: {what} within {seconds:g} s; the server hangs, or its time limit is too "
            "short for it"
        )

    def _settled(self, health: str) -> httpx.Response:
        """A server that is just being ended takes connections and drops them; not for long."""
        deadline = time.monotonic() + PROBE_S
        while True:
            try:
                return self._health(health)
            except (httpx.ReadError, httpx.RemoteProtocolError):
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)

    def _health(self, health: str) -> httpx.Response:
        self._require_listener()
        with self._client() as http:
            return http.get(health, timeout=PROBE_S)

    def _require_listener(self) -> None:
        """httpx leaves its own socket open where nobody listens at a path."""
        if self._socket is not None:
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(self._socket)
                except OSError as error:
                    raise httpx.ConnectError(str(error)) from error

    def _client(self) -> httpx.Client:
        transport = httpx.HTTPTransport(verify=self._tls, trust_env=False, uds=self._socket)
        return httpx.Client(trust_env=False, headers=self._headers, transport=transport)


def no_route(reply: httpx.Response) -> bool:
    """Whether the program knows no such route."""
    return words(reply) in _NO_ROUTE


def words(reply: httpx.Response) -> str:
    """What a refusal says, in one line."""
    said = as_object(reply)
    error = said.get("error")
    inner = error if isinstance(error, dict) else said
    found = str(inner.get("message") or inner.get("detail") or reply.text).strip()
    return next(iter(found.splitlines()), "nothing")[:_SHOWN]


def as_object(reply: httpx.Response) -> dict[str, Any]:
    """The answer's object; empty when it holds none."""
    try:
        found = reply.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def read_json(url: str, reply: httpx.Response) -> Any:
    """What a 200 says. Raises ServerError for an error object, FalseReplyError for half a reply."""
    try:
        found = reply.json()
    except ValueError as error:
        shown = reply.text[-40:]
        raise FalseReplyError(
            Lie.HALF, f"{url} gave an answer that is no whole JSON (it ends with {shown!r})"
        ) from error
    if isinstance(found, dict) and (found.get("object") == "error" or found.get("error")):
        raise ServerError(f"{url} answers with an error: {words(reply)}; look at the serving log")
    return found


def _route(address: str) -> str:
    return address.rstrip("/").rpartition("/")[2]


def _reason(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__
