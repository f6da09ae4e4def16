"""A server whose answers are written down beforehand, by route: for what a real one does rarely."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import httpx

from engine.contract.serving import Serving


class Canned(dict[str, tuple[int, Any]]):
    """Route → (status, body); status 0 never answers. A route that is not there is a 404.

    What it is asked stands in `asked`: (route, body), in the order of its coming.
    """

    def __enter__(self) -> Self:
        self._over = threading.Event()
        self.asked: list[tuple[str, Any]] = []
        routes, over, asked = self, self._over, self.asked

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def _answer(self) -> None:
                length = int(self.headers.get("content-length", 0))
                asked.append((self.path, json.loads(self.rfile.read(length) or b"null")))
                status, body = routes.get(self.path, (404, {"detail": "Not Found"}))
                if status == 0:
                    over.wait(60)
                    return
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            do_GET = do_POST = _answer  # noqa: N815 - the base class's names

            def log_message(self, *_: Any) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
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

    @property
    def serving(self) -> Serving:
        """Its address, with a short patience and a command that must not be needed."""
        url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        return Serving(url=url, serve_cmd="/nowhere/serve", timeout_s=1)

    def serve(self, base: str) -> None:
        """This base with somebody's adapter, and one completion."""
        cards = [
            {"id": base, "root": base, "parent": None, "max_model_len": 120},
            {"id": "policy", "root": "/theirs", "parent": base},
        ]
        logprobs = {"token_logprobs": [-1.0, -2.0], "top_logprobs": []}
        choice = {"index": 0, "prompt_token_ids": [1, 2], "token_ids": [5, 3], "logprobs": logprobs}
        self["/health"] = (200, {})
        self["/version"] = (200, {"version": "0.32.0+cpu"})
        self["/v1/models"] = (200, {"data": cards})
        self["/v1/completions"] = (200, {"choices": [choice]})

    def alive(self) -> bool:
        """Whether nobody ended it."""
        url = f"http://127.0.0.1:{self._server.server_address[1]}/health"
        return httpx.get(url, trust_env=False).status_code == httpx.codes.OK
