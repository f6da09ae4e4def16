"""A door in front of a server, which stops behaving at a chosen call.

Everything is passed on as it is, until the n-th load of an adapter: a run loads one before its
first rollout and one after each update. From then on it does what its `trick` says, to whoever
asks, until the client that asked hangs up.
"""

from __future__ import annotations

import json
import select
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self

import httpx

Trick = Literal["hang", "drip", "lie", "gone"]
LOADS = "/v1/load_lora_adapter"


class _Door(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512
    """A step's requests come all at once."""


class Front:
    """At `url`; the server behind it is at `behind`."""

    def __init__(self, behind: str, trick: Trick, nth: int) -> None:
        self._behind, self._nth = behind, nth
        self.trick: Trick | None = trick
        self.playing = threading.Event()
        """The trick is being played."""
        self._loads = 0
        self._over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def do_GET(self) -> None:
                front.answer(self, None)

            def do_POST(self) -> None:
                front.answer(self, self.rfile.read(int(self.headers["content-length"])))

            def log_message(self, *_: Any) -> None:
                """Silent."""

        self._server = _Door(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, client: BaseHTTPRequestHandler, body: bytes | None) -> None:
        """Pass one request on, or play the trick."""
        if client.path == LOADS:
            self._loads += 1
            if self._loads == self._nth and self.trick is not None:
                self.playing.set()
        trick = self.trick if self.playing.is_set() else None
        if trick == "gone":
            client.connection.close()
        elif trick == "hang":
            self._until_hung_up(client, lambda: None)
        else:
            status, told = self._asked(client.path, body)
            if trick == "lie" and client.path == "/v1/completions":
                told = _other_prompts(told)
            client.send_response(status)
            client.send_header("content-type", "application/json")
            client.send_header("content-length", str(len(told)))
            if trick == "drip":
                left = iter(told)
                client.end_headers()
                self._until_hung_up(client, lambda: _one(client, left))
            else:
                client.end_headers()
                client.wfile.write(told)

    def _asked(self, path: str, body: bytes | None) -> tuple[int, bytes]:
        method = "GET" if body is None else "POST"
        reply = httpx.request(
            method,
            self._behind + path,
            content=body,
            headers={"content-type": "application/json"},
            trust_env=False,
            timeout=60,
        )
        return reply.status_code, reply.content

    def _until_hung_up(self, client: BaseHTTPRequestHandler, act: Callable[[], None]) -> None:
        """`act` each second; with the client gone the trick is over."""
        acted_at = time.monotonic()
        while not self._over.is_set():
            gone, _, _ = select.select([client.connection], [], [], 0.05)
            if gone and self.trick is not None and not client.connection.recv(1):
                return
            if time.monotonic() - acted_at > 1:
                acted_at = time.monotonic()
                act()

    def heal(self) -> None:
        """From now on it behaves."""
        self.trick = None


def _one(client: BaseHTTPRequestHandler, left: Any) -> None:
    byte = next(left, None)
    if byte is not None:
        client.wfile.write(bytes([byte]))
        client.wfile.flush()


def _other_prompts(told: bytes) -> bytes:
    answer = json.loads(told)
    for choice in answer.get("choices", []):
        choice["prompt_token_ids"] = [*choice["prompt_token_ids"], 0]
    return json.dumps(answer).encode()
